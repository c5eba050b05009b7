"""The offline implementation: pictures drawn on this machine. The same prompt gives the same picture.

If the prompt names the picture of a bundled scene, its icon is drawn, otherwise colours and shapes.
"""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import TYPE_CHECKING

from retoma import GiveUp
from retoma_apps.providers.drawing import MOTIFS, create_palette, draw_gradient, draw_shape, seeded_random
from retoma_apps.providers.pictures import draw_cover
from retoma_apps.providers.provider import OfflineProvider
from retoma_apps.providers.topics import find_named_scene

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST = 4096
_SHAPES = 4


class OfflineImages(OfflineProvider):
    name = "offline"
    model = "shapes"
    follows_notes = False

    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        if not (1 <= width <= LARGEST and 1 <= height <= LARGEST):
            raise GiveUp(f"a picture can be at most {LARGEST} pixels wide and high", "IMAGE_BAD_REQUEST")
        return await asyncio.to_thread(_draw, prompt, width, height)


def _draw(prompt: str, width: int, height: int) -> bytes:
    picture = _draw_cover(prompt, width, height) or _draw_shapes(prompt, width, height)
    file = BytesIO()
    picture.save(file, "JPEG", quality=90)
    return file.getvalue()


def _draw_cover(prompt: str, width: int, height: int) -> Image | None:
    """Draw the icon of the scene whose picture the prompt names, in another way for another prompt."""
    if (found := find_named_scene(prompt)) is None:
        return None
    topic, scene = found
    return draw_cover(scene.picture, topic.theme, seeded_random("cover", prompt), (width, height))


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
