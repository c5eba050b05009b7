"""Write subtitles as SRT, as WebVTT, and as the script to burn into the picture."""

from __future__ import annotations

import re
from collections.abc import Sequence

from retoma_apps.media.models import Line
from retoma_apps.providers.captions import Segment, Style, ass_script

STYLE = Style(font_size=72, outline=4, bold=True)
_UNSHOWABLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def srt(lines: Sequence[Line]) -> str:
    """Write SRT. It has no escapes, so an invisible character breaks up anything that looks like a tag."""
    return "\n".join(
        f"{number}\n{_clock(line.start, ',')} --> {_clock(line.end, ',')}\n{_plain(line.text)}\n"
        for number, line in enumerate(lines, 1)
    )


def vtt(lines: Sequence[Line]) -> str:
    cues = (
        f"{number}\n{_clock(line.start, '.')} --> {_clock(line.end, '.')}\n{_text(line.text).translate(_ESCAPES)}\n"
        for number, line in enumerate(lines, 1)
    )
    return "\n".join(["WEBVTT\n", *cues])


def ass(lines: Sequence[Line], start: float = 0, end: float | None = None, style: Style = STYLE) -> str:
    """Write the subtitles between two times of the video, counted from the first of them."""
    visible = [
        line for line in lines if line.end > start and (end is None or line.start < end) and line.end > line.start
    ]
    return ass_script(
        (Segment(start=max(0, line.start - start), end=line.end - start, text=_text(line.text)) for line in visible),
        style,
    )


def _plain(text: str) -> str:
    return _text(text).replace("<", "<\u2060").replace("{", "{\u2060").replace("-->", "--\u2060>")


def _text(text: str) -> str:
    """Remove empty rows, which would end a subtitle early."""
    rows = (row.strip() for row in _UNSHOWABLE.sub("", text.replace("\r", "\n")).split("\n"))
    return "\n".join(row for row in rows if row)


def _clock(seconds: float, point: str) -> str:
    thousandths = round(seconds * 1000)
    hours, minutes = thousandths // 3_600_000, thousandths // 60_000 % 60
    return f"{hours:02}:{minutes:02}:{thousandths // 1000 % 60:02}{point}{thousandths % 1000:03}"
