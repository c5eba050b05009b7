"""What is in a finished file, decoded to be sure."""

from __future__ import annotations

import asyncio
import math
import sys
from array import array
from dataclasses import dataclass
from pathlib import Path

SILENCE = -91.0
"""Decibels below which 16 bits tell nothing."""


@dataclass(frozen=True)
class Media:
    """`mean_volume_db` is that of the whole sound against full scale; None where there is none."""

    seconds: float
    width: int | None
    height: int | None
    video_codec: str | None
    audio_codec: str | None
    mean_volume_db: float | None
    size: int


async def probe(path: Path) -> Media:
    return await asyncio.to_thread(_probed, path)


async def frame(path: Path, at: float, to: Path) -> None:
    """Write the picture seen at this second as a PNG; after the end, the last one."""
    await asyncio.to_thread(_framed, path, at, to)


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
            mean_volume_db=_mean_volume(path) if audio else None,
            size=path.stat().st_size,
        )


def _mean_volume(path: Path) -> float:
    import av

    power, count = 0, 0
    resampler = av.AudioResampler(format="s16", layout="mono", rate=16_000)
    with av.open(str(path)) as container:
        for packed in container.decode(audio=0):
            for plain in resampler.resample(packed):
                samples = _samples(bytes(plain.planes[0])[: 2 * plain.samples])
                power += sum(sample * sample for sample in samples)
                count += len(samples)
    return max(10 * math.log10(power / count / 32768**2), SILENCE) if power else SILENCE


def _samples(data: bytes) -> array[int]:
    samples = array("h", data)
    if sys.byteorder == "big":
        samples.byteswap()
    return samples


def _framed(path: Path, at: float, to: Path) -> None:
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        container.seek(max(0, int(at * av.time_base)))
        shown = None
        for picture in container.decode(stream):
            if shown is not None and picture.time is not None and picture.time > at:
                break
            shown = picture
        if shown is None:
            raise ValueError(f"{path.name} has no picture at {at:g} s")
        shown.to_image().save(to, "PNG")  # type: ignore[no-untyped-call]
