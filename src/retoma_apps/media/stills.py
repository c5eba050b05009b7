"""Turn a still picture into a moving one."""

from __future__ import annotations

from pathlib import Path

from retoma_apps.media.assembly import X264
from retoma_apps.media.atomic_write import write_atomically
from retoma_apps.providers import ffmpeg
from retoma_apps.providers.gpu.zooms import Zoom, zoom_filter


async def render_still(source: Path, to: Path, zoom: Zoom, *, frames: int, size: tuple[int, int], fps: int) -> None:
    """Write an MP4 of so many frames without sound. `to` is written atomically."""
    moved = zoom_filter(zoom, frames=frames, width=size[0], height=size[1], fps=fps)
    output = ["-vf", moved, "-frames:v", str(frames), *X264, "-f", "mp4", "clip.mp4"]
    with write_atomically(to, "clip.mp4") as folder:
        linked = _link(source, folder)
        await ffmpeg.run(["-err_detect", "explode", *ffmpeg.image_input(linked), *output], folder)


def _link(source: Path, folder: Path) -> Path:
    """Link the picture where ffmpeg runs: it reads no other folder."""
    linked = folder / "picture"
    linked.symlink_to(source.resolve())
    return linked
