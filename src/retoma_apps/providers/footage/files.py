"""Check downloaded files before use, with ffmpeg in a separate process."""

from __future__ import annotations

from pathlib import Path

from retoma_apps.providers import ffmpeg
from retoma_apps.providers.footage.errors import ClipUnusable

THUMBNAIL_WIDTH = 640


async def check_video(path: Path) -> None:
    try:
        content = await ffmpeg.probe(path)
    except ffmpeg.FfmpegFailed as error:
        raise ClipUnusable(f"the file is not a video: {error}") from error
    if not content.has_video or not content.seconds:
        raise ClipUnusable("the file has no video stream")


async def write_jpeg(picture: Path, to: Path) -> None:
    """Convert any picture to a small JPEG."""
    try:
        await _write_image(ffmpeg.image_input(picture), picture.parent, to)
    except ffmpeg.FfmpegFailed as error:
        raise ClipUnusable(f"the file is not a picture: {error}") from error


async def write_frame(clip: Path, to: Path) -> None:
    """Write the first frame as JPEG."""
    await _write_image([*ffmpeg.media_input(clip)], clip.parent, to)


async def _write_image(source: list[str], folder: Path, to: Path) -> None:
    part = to.with_name(f"{to.name}.part.jpg")
    scaled = f"scale='min({THUMBNAIL_WIDTH},iw)':-2:out_range=pc,format=yuvj420p"
    try:
        await ffmpeg.run([*source, "-frames:v", "1", "-vf", scaled, "-q:v", "3", str(part.resolve())], folder)
        part.rename(to)
    finally:
        part.unlink(missing_ok=True)
