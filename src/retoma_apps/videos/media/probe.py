"""What is in a finished file."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Media:
    seconds: float
    width: int | None
    height: int | None
    video_codec: str | None
    audio_codec: str | None
    size: int


async def probe(path: Path) -> Media:
    return await asyncio.to_thread(_probed, path)


def _probed(path: Path) -> Media:
    import av  # an extra: only who renders here needs it

    with av.open(str(path)) as container:
        video = container.streams.video[0] if container.streams.video else None
        audio = container.streams.audio[0] if container.streams.audio else None
        return Media(
            seconds=(container.duration or 0) / av.time_base,
            width=video.width if video else None,
            height=video.height if video else None,
            video_codec=video.codec_context.name if video else None,
            audio_codec=audio.codec_context.name if audio else None,
            size=path.stat().st_size,
        )
