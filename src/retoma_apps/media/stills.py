"""Turn a still picture into a moving one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from retoma_apps.media.assembly import X264
from retoma_apps.media.atomic_write import write_atomically
from retoma_apps.providers import ffmpeg
from retoma_apps.providers.gpu.zooms import Zoom, zoom_filter
from retoma_apps.providers.pictures import Animation, write_clip
from retoma_apps.providers.topics import Drawing


@dataclass(frozen=True)
class Format:
    """The length of a clip in frames, and the format of all clips of a film."""

    frames: int
    size: tuple[int, int]
    fps: int


async def render_still(source: Path, to: Path, zoom: Zoom, form: Format) -> None:
    """Write an MP4 without sound that moves over the picture. `to` is written atomically."""
    moved = zoom_filter(zoom, frames=form.frames, width=form.size[0], height=form.size[1], fps=form.fps)
    output = ["-vf", moved, "-frames:v", str(form.frames), *X264, "-f", "mp4", "clip.mp4"]
    with write_atomically(to, "clip.mp4") as folder:
        linked = _link(source, folder)
        await ffmpeg.run(["-err_detect", "explode", *ffmpeg.image_input(linked), *output], folder)


async def render_drawing(drawing: Drawing, text: str, number: int, to: Path, form: Format) -> None:
    """Write an MP4 without sound in which the drawing's parts appear while the text is spoken. `number` is the
    scene's. `to` is written atomically."""
    animation = await asyncio.to_thread(_animate, drawing, text, number, form)
    with write_atomically(to, "clip.mp4") as folder:
        clip = folder / "clip.mp4"
        await write_clip(animation, clip, frames=form.frames, fps=form.fps, size=form.size, encoding=X264)


def _animate(drawing: Drawing, text: str, number: int, form: Format) -> Animation:
    return Animation(drawing.animate(text), form.frames / form.fps, form.size, subtitles=False, number=number)


def _link(source: Path, folder: Path) -> Path:
    """Link the picture where ffmpeg runs: it reads no other folder."""
    linked = folder / "picture"
    linked.symlink_to(source.resolve())
    return linked
