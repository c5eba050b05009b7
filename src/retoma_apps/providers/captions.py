"""Parse subtitles from SRT and write them as an ASS script for ffmpeg."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from retoma_apps.providers import fonts

Colour = Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")]
MAX_SECONDS = 35_999.0  # the largest ASS timestamp with one digit of hours
MOST_SEGMENTS = 10_000
_LONGEST_BLOCK = 10_000  # characters, tags included
_TIME = r"(\d{1,3}):(\d{2}):(\d{2})[,.](\d{1,3})"
_TIMES = re.compile(rf"^\s*{_TIME}\s*-->\s*{_TIME}")
_TAG = re.compile(r"</?(?:i|b|u|s|font)(?:\s[^<>]*)?>", re.IGNORECASE)
_UNSHOWABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ALIGNMENT = {"bottom": 2, "middle": 5, "top": 8}


class Style(BaseModel):
    """`font_size` is in pixels at a video height of 1080 and scales with the video."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    font_size: Annotated[int, Field(ge=8, le=400)] = 64
    color: Colour = "#ffffff"
    outline_color: Colour = "#000000"
    outline: Annotated[float, Field(ge=0, le=20)] = 4
    bold: bool = False
    position: Literal["bottom", "middle", "top"] = "bottom"


class Segment(BaseModel):
    """Times are seconds from the start of the video."""

    model_config = ConfigDict(frozen=True)

    start: Annotated[float, Field(ge=0, le=MAX_SECONDS)]
    end: Annotated[float, Field(gt=0, le=MAX_SECONDS)]
    text: Annotated[str, Field(max_length=2000)]

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> Self:
        if self.end <= self.start:
            raise ValueError(f"a segment ends at {self.end:g} s, which is not after its start at {self.start:g} s")
        return self


def parse_srt(text: str) -> list[Segment]:
    """Parse SRT subtitles. Raise ValueError with the number of the first invalid block."""
    blocks = re.split(r"\n\s*\n", text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").strip())
    if blocks == [""]:
        raise ValueError("the subtitles are empty")
    if len(blocks) > MOST_SEGMENTS:
        raise ValueError(f"the subtitles have {len(blocks):,} blocks, over the limit of {MOST_SEGMENTS:,}")
    return [_segment(number, block) for number, block in enumerate(blocks, 1)]


def ass_script(segments: Iterable[Segment], style: Style) -> str:
    """Return the whole script. Text is shown literally: ASS commands in it have no effect."""
    lines = [
        f"Dialogue: 0,{_clock(one.start)},{_clock(one.end)},Default,,0,0,0,,{_escape_text(one.text)}"
        for one in segments
    ]
    return "\n".join([*_head(style), *lines, ""])


def subtitle_filter(script: str, folder: str) -> str:
    """Return the filter that draws a script with the fonts in `folder`; both are plain names in ffmpeg's folder."""
    return f"subtitles={script}:fontsdir={folder}:force_style='FontName={fonts.NAME}'"


def _segment(number: int, block: str) -> Segment:
    if len(block) > _LONGEST_BLOCK:
        raise ValueError(f"block {number} of the subtitles is over the limit of {_LONGEST_BLOCK:,} characters")
    lines = block.strip("\n").split("\n")
    at = 0 if _TIMES.match(lines[0]) else 1
    times = _TIMES.match(lines[at]) if at < len(lines) else None
    if times is None:
        raise ValueError(f"block {number} of the subtitles has no line such as 00:00:01,000 --> 00:00:02,500")
    start, end = _seconds(times.groups()[:4]), _seconds(times.groups()[4:])
    try:
        return Segment(start=start, end=end, text=_TAG.sub("", "\n".join(lines[at + 1 :])))
    except ValidationError as error:
        message = error.errors(include_url=False, include_input=False)[0]["msg"].removeprefix("Value error, ")
        raise ValueError(f"block {number} of the subtitles: {message}") from error


def _seconds(parts: tuple[str, ...]) -> float:
    hours, minutes, seconds, rest = parts
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + int(rest.ljust(3, "0")) / 1000


def _clock(seconds: float) -> str:
    hundredths = round(seconds * 100)
    return f"{hundredths // 360000}:{hundredths // 6000 % 60:02}:{hundredths // 100 % 60:02}.{hundredths % 100:02}"


def _escape_text(text: str) -> str:
    # A word joiner after a backslash is invisible, and prevents the backslash from starting a command.
    plain = _UNSHOWABLE.sub("", text.strip()).replace("\\", "\\\u2060").replace("{", "\\{").replace("}", "\\}")
    return "\\N".join(plain.split("\n"))


def _head(style: Style) -> list[str]:
    fields = (
        f"Default,{fonts.NAME},{style.font_size},{_colour(style.color)},{_colour(style.outline_color)},"
        f"{-1 if style.bold else 0},1,{style.outline:g},0,{_ALIGNMENT[style.position]},80,80,60"
    )
    return [
        "[Script Info]",
        "ScriptType: v4.00+",
        "PlayResX: 1920",
        "PlayResY: 1080",
        "ScaledBorderAndShadow: yes",
        "[V4+ Styles]",
        "Format: Name,Fontname,Fontsize,PrimaryColour,OutlineColour,Bold,BorderStyle,Outline,Shadow,Alignment,"
        "MarginL,MarginR,MarginV",
        f"Style: {fields}",
        "[Events]",
        "Format: Layer,Start,End,Style,Name,MarginL,MarginR,MarginV,Effect,Text",
    ]


def _colour(rgb: str) -> str:
    """Convert #rrggbb to ASS notation: blue first, no transparency."""
    return f"&H00{rgb[5:7]}{rgb[3:5]}{rgb[1:3]}".upper()
