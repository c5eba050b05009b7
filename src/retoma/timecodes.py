"""Parse comments, one per line: `1:23 text`, `1:23-1:40 text`, or `“passage” text`, with or without a time. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from retoma.define.review import Comment

_TIMECODE = r"(?:(\d{1,3}):)?(\d{1,3}):(\d{2}(?:[.,]\d{1,3})?)"
_TIMES = rf"{_TIMECODE}(?:\s*[-\N{{EN DASH}}]\s*{_TIMECODE})?\s+"
_QUOTE = r"\N{LEFT DOUBLE QUOTATION MARK}([^\N{RIGHT DOUBLE QUOTATION MARK}]+)\N{RIGHT DOUBLE QUOTATION MARK}\s+"
_COMMENT_LINE = re.compile(rf"\s*(?:{_TIMES})?(?:{_QUOTE})?(\S.*)")


def parse_comments(submitted: str) -> Iterator[Comment]:
    """Yield the comments; one without a time is about the whole recording."""
    for line in submitted.splitlines():
        if matched := _COMMENT_LINE.fullmatch(line):
            *times, quote, text = matched.groups()
            start, end = (_to_seconds(*part) if part[1] else None for part in (times[:3], times[3:]))
            yield Comment(text.strip(), start, end, (quote or "").strip())


def _to_seconds(hours: str | None, minutes: str, seconds: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds.replace(",", "."))
