"""Draw a cover: a few large words beside an icon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retoma_apps.providers.pictures.models import Theme
from retoma_apps.providers.pictures.stage import COLOURS, HEIGHT, TONES, WIDTH, Stage, draw_ground, place_sprite

if TYPE_CHECKING:
    from PIL.Image import Image

_SETTLED = 10.0
_MARGIN, _WORDS_WIDE, _DISC = 100, 860, 800


def draw_cover(icon: str, text: str, theme: Theme, number: int, size: tuple[int, int]) -> Image:
    """Draw the words beside the icon. Another number has other colours, and every second one the icon on the left."""
    colours = COLOURS[theme][TONES[number % len(TONES)]]
    stage, cover = Stage(colours, size[0] / WIDTH), draw_ground(colours, *size)
    words = stage.draw_text(text, 230, _WORDS_WIDE, weight="Black")
    wide, high = stage.measure(words)
    is_mirrored = number % 2 == 1
    left = WIDTH - _MARGIN - _WORDS_WIDE if is_mirrored else _MARGIN
    x, middle = (_MARGIN + _DISC / 2 if is_mirrored else WIDTH - _MARGIN - _DISC / 2), HEIGHT / 2
    stage.add_icon_on_disc(icon, _DISC, x, middle, 0)
    stage.add(stage.draw_card(170, 18, 9, colours.accent), left + 85, middle - high / 2 - 40, 0)
    stage.add(words, left + wide / 2, middle, 0)
    for sprite in stage.sprites:
        place_sprite(cover, sprite, _SETTLED, stage.scale)
    return cover
