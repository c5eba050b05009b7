"""Why a document cannot be read. A retry would fail again, so each error is a GiveUp."""

from __future__ import annotations

from typing import Literal

from retoma import GiveUp

Code = Literal[
    "FILE_DAMAGED",
    "FILE_EMPTY",
    "FILE_ENCRYPTED",
    "FILE_NEEDS_OCR",
    "FILE_TOO_LARGE",
    "FILE_UNSUPPORTED",
    "NOT_INSTALLED",
]


class Unreadable(GiveUp):
    """The message is for the person who sent the document, and repeats none of its content."""

    code: Code

    def __init__(self, reason: str, code: Code) -> None:
        super().__init__(reason, code)
