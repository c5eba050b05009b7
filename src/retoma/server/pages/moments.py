"""Comments about moments of a recording, as people type them: one to a line, `1:23 text` or `1:23-1:40 text`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from retoma.define.review import Comment

_TIME = r"(?:(\d{1,3}):)?(\d{1,3}):(\d{2}(?:[.,]\d{1,3})?)"
_MOMENT = re.compile(rf"\s*{_TIME}(?:\s*[-\N{{EN DASH}}]\s*{_TIME})?\s+(\S.*)")


def read(typed: str) -> Iterator[Comment]:
    """Without a time a comment is about the whole."""
    for line in typed.splitlines():
        if matched := _MOMENT.fullmatch(line):
            *times, text = matched.groups()
            yield Comment(text.strip(), _seconds(*times[:3]), _seconds(*times[3:]) if times[4] else None)
        elif line.strip():
            yield Comment(line.strip())


def _seconds(hours: str | None, minutes: str, seconds: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds.replace(",", "."))
