"""Read the properties of a finished file."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from retoma_apps.providers import ffmpeg


@dataclass(frozen=True)
class Media:
    seconds: float
    width: int | None
    height: int | None
    video_codec: str | None
    audio_codec: str | None
    size: int


async def probe(path: Path) -> Media:
    found = await ffmpeg.probe(path)
    return Media(
        seconds=found.seconds or 0.0,
        width=found.width,
        height=found.height,
        video_codec=found.video_codec,
        audio_codec=found.audio_codec,
        size=(await asyncio.to_thread(path.stat)).st_size,
    )
