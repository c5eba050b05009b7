"""Untrusted text, escaped for a terminal."""

from __future__ import annotations

import re

# Control characters move the cursor and hide text; bidirectional and invisible characters disguise it.
UNSAFE_CHARACTERS = r"\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
"""The inside of a character class of regular expressions."""
_UNSAFE = re.compile(rf"[{UNSAFE_CHARACTERS}\ud800-\udfff]")


def escape_text(text: str) -> str:
    """Return the text on one line, with every character that controls a terminal escaped (`\\x1b`)."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def remove_unsafe(text: str) -> str:
    """Return the text without every character that acts on a terminal or changes how the others read."""
    return _UNSAFE.sub("", text)


def shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
