"""Normalise text that anybody may have written, in time proportional to its length.

Python sorts each sequence of combining marks in quadratic time: 40,000 marks on one letter would stop the process
for seconds. No language puts more than a few on a letter, so longer sequences are cut.
"""

from __future__ import annotations

import unicodedata
from itertools import groupby
from typing import Literal

MAX_MARKS = 30
"""Combining marks in a row, as in the Stream-Safe Text Format of Unicode."""


def compose(text: str) -> str:
    """Return the text with one character for each letter and its accents (NFC)."""
    return _normalize("NFC", text)


def decompose(text: str) -> str:
    """Return the text with accents as separate characters, and compatible characters replaced (NFKD)."""
    return _normalize("NFKD", text)


def remove_accents(text: str) -> str:
    """Return the text for comparison: decomposed, without its accents and its case."""
    return "".join(each for each in decompose(text.casefold()) if not unicodedata.combining(each))


def _normalize(form: Literal["NFC", "NFKD"], text: str) -> str:
    return text if text.isascii() else unicodedata.normalize(form, _limit_marks(text))  # noqa: TID251, the one place


def _limit_marks(text: str) -> str:
    """Return the text with at most MAX_MARKS combining marks in a row."""
    parts = ("".join(part)[: MAX_MARKS if are_marks else None] for are_marks, part in groupby(text, _is_mark))
    return "".join(parts)


def _is_mark(character: str) -> bool:
    # The category, not the combining class: that of U+0F73 is 0, but those of its two parts are not.
    return unicodedata.category(character)[0] == "M"
