"""The offline implementation: clips drawn on this machine.

If the query names the picture of a bundled scene, the clips show that picture, animated in time with the scene's words.
For any other query they show its words over moving colours and shapes, which names the topic of a scene but does not
show it. The same query always returns the same clips.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from retoma_apps.providers import ffmpeg
from retoma_apps.providers.drawing import MOTIFS, create_palette, draw_gradient, draw_shape, draw_text, seeded_random
from retoma_apps.providers.footage.errors import ClipUnusable
from retoma_apps.providers.footage.files import THUMBNAIL_WIDTH, write_frame
from retoma_apps.providers.footage.matching import keywords
from retoma_apps.providers.footage.port import FoundClip
from retoma_apps.providers.pictures import VARIANTS, Animation, write_clip
from retoma_apps.providers.provider import OfflineProvider
from retoma_apps.providers.topics import Drawing, find_drawing, find_scene, format_link, parse_link, write_jpeg

if TYPE_CHECKING:
    from PIL.Image import Image

SHORTEST, LONGEST = 8.0, 15.0
LONGEST_SCENE = 60.0
_VARIANTS = 6
_TRANSITION_SECONDS = 0.6
"""Seconds that a picture lasts beyond its scene, while the next one arrives."""
_LONGEST_QUERY = 200
_SPREAD = 1.25
"""Size of the background relative to the frame that moves over it."""
_SHAPES = 3
_GROWTH = 0.04
"""How much of its width the text gains on each side at the nearest point of its zoom."""
_MAX_LOOP_SECONDS = 5.0
_X264 = ("-c:v", "libx264", "-preset", "superfast", "-crf", "21", "-pix_fmt", "yuv420p")


@dataclass(frozen=True)
class Frames:
    width: int = 1920
    height: int = 1080
    fps: int = 30


class OfflineFootage(OfflineProvider):
    """`frames` and `longest` make tiny clips for tests; `longest` is in seconds and may be under SHORTEST."""

    name = "offline"
    longest_shot = LONGEST_SCENE

    def __init__(self, frames: Frames | None = None, *, longest: float = LONGEST_SCENE) -> None:
        self._frames = frames or Frames()
        self._longest = longest

    async def search(self, query: str, *, language: str, seconds: float, limit: int = 10) -> list[FoundClip]:
        variants = VARIANTS if find_scene(query) else _VARIANTS
        return [self._create_clip(query[:_LONGEST_QUERY], seconds, variant) for variant in range(min(limit, variants))]

    async def fetch(self, found: FoundClip, to: Path) -> None:
        with TemporaryDirectory(dir=to.parent) as folder:
            clip = Path(folder) / "clip.mp4"
            if (drawing := find_drawing(found.link)) is not None:
                await _draw_scene(clip, drawing, self._frames, min(found.seconds, LONGEST_SCENE))
            else:
                await _draw_clip(clip, found, self._frames, min(found.seconds, LONGEST))
            clip.rename(to)

    async def fetch_thumbnail(self, found: FoundClip, to: Path) -> None:
        """Draw only one frame, which is much faster than the clip: the first, or the one with all parts."""
        if (drawing := find_drawing(found.link)) is not None:
            await asyncio.to_thread(_draw_scene_thumbnail, drawing, self._frames, to)
            return
        with TemporaryDirectory(dir=to.parent) as folder:
            clip = Path(folder) / "clip.mp4"
            await _draw_clip(clip, found, self._frames, 1 / self._frames.fps)
            await write_frame(clip, to)

    def _create_clip(self, query: str, seconds: float, variant: int) -> FoundClip:
        is_scene = find_scene(query) is not None
        length = seconds + _TRANSITION_SECONDS if is_scene else min(max(seconds, SHORTEST), LONGEST)
        digest = seeded_random(query, str(variant)).randbytes(8).hex()
        return FoundClip(
            id=f"offline-{digest}",
            source=self.name,
            url="",
            author="",
            link=format_link(query, variant),
            picture="",
            seconds=round(min(length, self._longest), 3),
            width=self._frames.width,
            height=self._frames.height,
            tags=tuple(keywords(query)),
        )


async def _draw_scene(clip: Path, drawing: Drawing, frames: Frames, seconds: float) -> None:
    animation = await asyncio.to_thread(_animate, drawing, frames, seconds)
    count, size = max(round(seconds * frames.fps), 1), (frames.width, frames.height)
    await write_clip(animation, clip, frames=count, fps=frames.fps, size=size)


def _draw_scene_thumbnail(drawing: Drawing, frames: Frames, to: Path) -> None:
    part = to.with_name(f"{to.name}.part")
    picture = _animate(drawing, frames, LONGEST).draw_complete()
    picture.thumbnail((THUMBNAIL_WIDTH, THUMBNAIL_WIDTH))
    part.write_bytes(write_jpeg(picture, drawing))
    part.rename(to)


def _animate(drawing: Drawing, frames: Frames, seconds: float) -> Animation:
    return Animation(drawing.animate(), max(seconds - _TRANSITION_SECONDS, 0.1), (frames.width, frames.height))


@dataclass(frozen=True)
class _Clip:
    """The layered pictures from bottom to top, and the movement of those in between: x and y over time."""

    pictures: Sequence[str]
    paths: Sequence[tuple[str, str]]
    phase: float


async def _draw_clip(clip: Path, found: FoundClip, frames: Frames, seconds: float) -> None:
    """Draw one loop, which ends as it began, and repeat it to fill the clip."""
    link = parse_link(found.link)
    if link is None:
        raise ClipUnusable("this clip is not from the offline implementation, which cannot draw it")
    layers = await asyncio.to_thread(_draw_layers, clip.parent, link[0], str(link[1]), frames)
    count = max(round(seconds * frames.fps), 1)
    loops = math.ceil(seconds / _MAX_LOOP_SECONDS)
    await ffmpeg.run(_loop_arguments(layers, frames, math.ceil(count / loops)), clip.parent)
    await ffmpeg.run(_repeat_arguments(loops, count, clip.name), clip.parent)


def _draw_layers(folder: Path, query: str, variant: str, frames: Frames) -> _Clip:
    random = seeded_random(query, variant)
    colours = create_palette(random)
    motif = random.choice(MOTIFS)
    draw_gradient(colours, random, *_background_size(frames)).save(folder / "ground.png", compress_level=1)
    names, paths = [], []
    for number in range(_SHAPES):
        size = _round_to_even(frames.height * random.uniform(0.4, 0.8))
        draw_shape(motif, colours, random, size).save(folder / f"shape{number}.png", compress_level=1)
        names.append(f"shape{number}.png")
        paths.append(_path(random, number, size, frames))
    _crop_to_text(draw_text(query, frames.width, frames.height)).save(folder / "letters.png", compress_level=1)
    return _Clip(["ground.png", *names, "letters.png"], paths, random.uniform(0, math.tau))


def _crop_to_text(letters: Image) -> Image:
    """Crop to the visible text, with room to grow: fewer pixels make every frame cheaper."""
    left, top, right, bottom = letters.getbbox() or (0, 0, 2, 2)
    wide, high = (_round_to_even(length * (1 + 3 * _GROWTH)) for length in (right - left, bottom - top))
    x, y = (left + right - wide) // 2, (top + bottom - high) // 2
    return letters.crop((x, y, x + wide, y + high))


def _path(random: Random, number: int, size: int, frames: Frames) -> tuple[str, str]:
    """Return a path around an oval; `angle` is replaced with the expression that completes one turn per loop."""
    middle = frames.width * (number + random.random()) / _SHAPES - size / 2
    level = random.uniform(-0.2, 0.6) * frames.height
    wide, high = random.uniform(0.03, 0.07) * frames.width, random.uniform(0.02, 0.06) * frames.height
    phase, way = random.uniform(0, math.tau), random.choice("+-")
    return f"{middle:.1f}{way}{wide:.1f}*sin(angle+{phase:.2f})", f"{level:.1f}+{high:.1f}*cos(angle+{phase:.2f})"


def _loop_arguments(clip: _Clip, frames: Frames, count: int) -> list[str]:
    rate = str(frames.fps)
    inputs = [part for name in clip.pictures for part in ("-f", "png_pipe", "-framerate", rate, "-i", name)]
    return [
        *inputs,
        *("-filter_complex", _filter_graph(clip, frames, count), "-map", "[out]", "-frames:v", str(count)),
        # Without B frames: the last one would need the first frame of the next loop.
        *("-bf", "0"),
        *_X264,
        "round.mp4",
    ]


def _repeat_arguments(loops: int, count: int, clip: str) -> list[str]:
    source = ["-stream_loop", str(loops - 1), "-i", "round.mp4"]
    return [*source, "-c", "copy", "-frames:v", str(count), "-movflags", "+faststart", clip]


def _filter_graph(clip: _Clip, frames: Frames, count: int) -> str:
    angle = f"(2*PI*t*{frames.fps}/{count})"
    still = "loop=loop=-1:size=1"  # decode the picture once, not for every frame
    parts = [f"[0]format=yuv420p,{still},{_pan_filter(clip.phase, frames, angle)}[at0]"]
    for number, (x, y) in enumerate(clip.paths, 1):
        parts.append(f"[{number}]format=yuva420p,{still}[shape{number}]")
        placed = f"overlay=x='{x}':y='{y}'".replace("angle", angle)
        parts.append(f"[at{number - 1}][shape{number}]{placed}[at{number}]")
    last = len(clip.paths)
    parts.append(f"[{last + 1}]format=yuva420p,{still},{_zoom_filter(count)}[letters]")
    parts.append(f"[at{last}][letters]overlay=x=(W-w)/2:y=(H-h)/2,format=yuv420p[out]")
    return ";".join(parts)


def _pan_filter(phase: float, frames: Frames, angle: str) -> str:
    wide, high = _background_size(frames)
    x = f"{(wide - frames.width) / 2:g}*(1+sin({angle}+{phase:.2f}))"
    y = f"{(high - frames.height) / 2:g}*(1+cos({angle}+{phase:.2f}))"
    return f"crop={frames.width}:{frames.height}:x='{x}':y='{y}'"


def _zoom_filter(count: int) -> str:
    """Zoom slowly in and out at subpixel precision; `zoompan` would jitter."""
    part = f"({_GROWTH}*(1-cos(2*PI*on/{count}))/2)"
    left, right, top, bottom = f"W*{part}", f"W*(1-{part})", f"H*{part}", f"H*(1-{part})"
    corners = ((left, top), (right, top), (left, bottom), (right, bottom))
    arguments = ":".join(f"x{at}='{x}':y{at}='{y}'" for at, (x, y) in enumerate(corners))
    return f"perspective={arguments}:interpolation=linear:eval=frame"


def _background_size(frames: Frames) -> tuple[int, int]:
    return _round_to_even(frames.width * _SPREAD), _round_to_even(frames.height * _SPREAD)


def _round_to_even(length: float) -> int:
    """Round to an even number: colour is stored for every second pixel."""
    return max(round(length / 2) * 2, 2)
