"""A stranger's picture brought to a size, by ffmpeg in a process of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from retoma_apps.providers import ffmpeg
from retoma_apps.providers.images.errors import InvalidImage


async def resize_to_fill(picture: bytes, width: int, height: int) -> bytes:
    """A JPEG of exactly this size, filled: what is too wide or too high is cut at both sides."""
    with TemporaryDirectory() as made:
        given, drawn = Path(made, "given"), Path(made, "drawn.jpg")
        await asyncio.to_thread(given.write_bytes, picture)
        try:
            await ffmpeg.run(_arguments(given, width, height), given.parent)
        except ffmpeg.FfmpegFailed as error:
            raise InvalidImage(f"what came is no picture: {error}") from error
        return await asyncio.to_thread(drawn.read_bytes)


def _arguments(given: Path, width: int, height: int) -> list[str]:
    scaled = f"scale={width}:{height}:force_original_aspect_ratio=increase:out_range=pc"
    filters = f"{scaled},crop={width}:{height}:exact=1,setsar=1,format=yuvj420p"
    return [*ffmpeg.image_input(given), "-frames:v", "1", "-vf", filters, "-q:v", "2", "drawn.jpg"]
