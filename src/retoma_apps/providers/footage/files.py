"""What was fetched is looked at before anyone uses it, by ffmpeg in a process of its own."""

from __future__ import annotations

from pathlib import Path

from retoma_apps.providers import ffmpeg
from retoma_apps.providers.footage.errors import ClipUnusable

_THUMBNAIL_WIDTH = 640


async def check_video(path: Path) -> None:
    try:
        told = await ffmpeg.probe(path)
    except ffmpeg.FfmpegFailed as error:
        raise ClipUnusable(f"what came is no video: {error}") from error
    if not told.has_video or not told.seconds:
        raise ClipUnusable("what came has no moving picture in it")


async def write_jpeg(picture: Path, to: Path) -> None:
    """Drawn anew and made small, whatever kind of picture it was."""
    try:
        await _write_image(ffmpeg.image_input(picture), picture.parent, to)
    except ffmpeg.FfmpegFailed as error:
        raise ClipUnusable(f"what came is no picture: {error}") from error


async def write_frame(clip: Path, to: Path) -> None:
    """The first frame."""
    await _write_image([*ffmpeg.media_input(clip)], clip.parent, to)


async def _write_image(source: list[str], folder: Path, to: Path) -> None:
    part = to.with_name(f"{to.name}.part.jpg")
    scaled = f"scale='min({_THUMBNAIL_WIDTH},iw)':-2:out_range=pc,format=yuvj420p"
    try:
        await ffmpeg.run([*source, "-frames:v", "1", "-vf", scaled, "-q:v", "3", str(part.resolve())], folder)
        part.rename(to)
    finally:
        part.unlink(missing_ok=True)
