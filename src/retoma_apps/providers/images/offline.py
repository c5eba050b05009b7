"""The offline implementation: pictures drawn on this machine. The same prompt gives the same picture.

If the prompt names the picture of a bundled scene, that picture is drawn, in other colours if the prompt says
`Version 2.`; otherwise colours and shapes are drawn.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from retoma import GiveUp
from retoma_apps.providers.drawing import MOTIFS, create_palette, draw_gradient, draw_shape, seeded_random
from retoma_apps.providers.pictures import Animation
from retoma_apps.providers.provider import OfflineProvider
from retoma_apps.providers.topics import Drawing, find_named_scene, write_jpeg

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST = 4096
_SHAPES = 4
_LONG_ENOUGH = 20.0
"""Seconds in which all parts of a picture appear."""
_VERSION = re.compile(r"\bVersion ([1-9]\d{0,3})\.")


class OfflineImages(OfflineProvider):
    name = "offline"
    model = "shapes"
    follows_notes = False

    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        if not (1 <= width <= LARGEST and 1 <= height <= LARGEST):
            raise GiveUp(f"a picture can be at most {LARGEST} pixels wide and high", "IMAGE_BAD_REQUEST")
        return await asyncio.to_thread(_draw, prompt, width, height)


def _draw(prompt: str, width: int, height: int) -> bytes:
    drawing = _find_drawing(prompt)
    if drawing is None:
        return write_jpeg(_draw_shapes(prompt, width, height))
    complete = Animation(drawing.animate(), _LONG_ENOUGH, (width, height), subtitles=False).draw_complete()
    return write_jpeg(complete, drawing)


def _find_drawing(prompt: str) -> Drawing | None:
    if (found := find_named_scene(prompt)) is None:
        return None
    version = _VERSION.search(prompt)
    return Drawing(*found, variant=int(version[1]) - 1 if version else 0)


def _draw_shapes(prompt: str, width: int, height: int) -> Image:
    random = seeded_random("picture", prompt)
    colours = create_palette(random)
    picture = draw_gradient(colours, random, width, height)
    for motif in random.sample(MOTIFS, _SHAPES):
        size = max(round(min(width, height) * random.uniform(0.4, 1.0)), 2)
        drawn = draw_shape(motif, colours, random, size)
        at = (round(random.uniform(-0.2, 0.8) * width), round(random.uniform(-0.2, 0.7) * height))
        picture.paste(drawn, at, drawn)
    return picture
