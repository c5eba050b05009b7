"""Why a document cannot be read. Another try would meet the same, so each is a GiveUp."""

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
    """Its message is for the person who sent the document, and repeats nothing of what stands in it."""

    def __init__(self, reason: str, code: Code) -> None:
        super().__init__(reason, code)
