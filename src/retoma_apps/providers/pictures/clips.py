"""Write an animation as a video."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from retoma_apps.providers import ffmpeg
from retoma_apps.providers.pictures.animation import Animation

_QUICK = ("-c:v", "libx264", "-preset", "superfast", "-crf", "21", "-pix_fmt", "yuv420p")


async def write_clip(
    animation: Animation, to: Path, *, frames: int, fps: int, size: tuple[int, int], encoding: Sequence[str] = _QUICK
) -> None:
    """Write an MP4 of so many frames without sound. The frames are drawn while they are encoded."""
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[0]}x{size[1]}", "-framerate", str(fps)]
    await ffmpeg.run(
        [*source, "-i", "pipe:0", *encoding, "-movflags", "+faststart", "-f", "mp4", to.name],
        to.parent,
        frames=animation.draw_frames(frames, fps),
    )
