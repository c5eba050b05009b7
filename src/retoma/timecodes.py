"""Parse timed comments, one per line: `1:23 text` or `1:23-1:40 text`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from retoma.define.review import Comment

_TIMECODE = r"(?:(\d{1,3}):)?(\d{1,3}):(\d{2}(?:[.,]\d{1,3})?)"
_COMMENT_LINE = re.compile(rf"\s*{_TIMECODE}(?:\s*[-\N{{EN DASH}}]\s*{_TIMECODE})?\s+(\S.*)")


def parse_comments(submitted: str) -> Iterator[Comment]:
    """Yield the comments; one without a time is about the whole recording."""
    for line in submitted.splitlines():
        if matched := _COMMENT_LINE.fullmatch(line):
            *times, text = matched.groups()
            yield Comment(text.strip(), _to_seconds(*times[:3]), _to_seconds(*times[3:]) if times[4] else None)
        elif line.strip():
            yield Comment(line.strip())


def _to_seconds(hours: str | None, minutes: str, seconds: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds.replace(",", "."))
