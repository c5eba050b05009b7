"""Resize an untrusted picture with ffmpeg in a separate process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from retoma_apps.providers import ffmpeg
from retoma_apps.providers.images.errors import InvalidImage


async def resize_to_fill(picture: bytes, width: int, height: int) -> bytes:
    """Return a JPEG of exactly this size, filled: an excess in width or height is cropped on both sides."""
    with TemporaryDirectory() as folder:
        source, drawn = Path(folder, "source"), Path(folder, "drawn.jpg")
        await asyncio.to_thread(source.write_bytes, picture)
        try:
            await ffmpeg.run(_arguments(source, width, height), source.parent)
        except ffmpeg.FfmpegFailed as error:
            raise InvalidImage(f"the file is not a picture: {error}") from error
        return await asyncio.to_thread(drawn.read_bytes)


def _arguments(source: Path, width: int, height: int) -> list[str]:
    scaled = f"scale={width}:{height}:force_original_aspect_ratio=increase:out_range=pc"
    filters = f"{scaled},crop={width}:{height}:exact=1,setsar=1,format=yuvj420p"
    return [*ffmpeg.image_input(source), "-frames:v", "1", "-vf", filters, "-q:v", "2", "drawn.jpg"]
