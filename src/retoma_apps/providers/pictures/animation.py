"""Turn a picture into frames: parts appear in time with the narration, stay, and leave before the next scene."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

from retoma_apps.providers.pictures.layouts import FIRST, arrange
from retoma_apps.providers.pictures.models import Picture, Theme
from retoma_apps.providers.pictures.stage import (
    COLOURS,
    FLOORS,
    TONES,
    WIDTH,
    Stage,
    draw_floor,
    draw_ground,
    place_sprite,
)

if TYPE_CHECKING:
    from PIL.Image import Image

VARIANTS = len(TONES)
_SCENE_PAUSE = 0.7
"""Seconds without words at the end of a scene."""
_LEAVE_END, _LEAVE_SECONDS = 0.25, 0.3
"""When the parts have left, in seconds before the end of the scene, and how long that takes."""


@dataclass(frozen=True)
class Scene:
    """A picture and the words that are spoken meanwhile. `variant` chooses other colours of the theme; if `is_last`, no
    other scene follows, so its parts stay."""

    picture: Picture
    text: str
    theme: Theme
    variant: int = 0
    is_last: bool = False


class Animation:
    """`seconds` is how long the scene lasts; later frames show the empty ground."""

    def __init__(self, scene: Scene, seconds: float, size: tuple[int, int]) -> None:
        tone = TONES[(TONES.index(scene.picture.tone) + scene.variant) % len(TONES)]
        colours = COLOURS[scene.theme][tone]
        self._complete_at = seconds - _LEAVE_END - _LEAVE_SECONDS
        self._leaves_at = math.inf if scene.is_last else self._complete_at
        self._stage = Stage(colours, size[0] / WIDTH, max(seconds - _SCENE_PAUSE, 0.5))
        self._ground = draw_ground(colours, *size)
        draw_floor(self._ground, FLOORS[scene.theme], colours.accent)
        arrange(scene.picture, self._stage, find_cues(scene.picture, scene.text, seconds))
        self._settled: tuple[list[bool], Image] | None = None

    def draw(self, at: float) -> Image:
        """Draw the frame at this time of the scene, in seconds."""
        from PIL import Image

        left = (at - self._leaves_at) / _LEAVE_SECONDS
        if left >= 1:
            return self._ground
        frame = self._draw_parts(min(at, self._leaves_at))
        return frame if left <= 0 else Image.blend(frame, self._ground, left)

    def draw_complete(self) -> Image:
        """Draw the frame in which all parts can be seen."""
        return self._draw_parts(self._complete_at)

    def draw_frames(self, count: int, fps: int) -> Iterator[bytes]:
        """Yield so many frames as RGB. A frame is drawn only if it differs from the one before."""
        shown, frame = None, b""
        for at in (number / fps for number in range(count)):
            if (state := self._describe(at)) != shown:
                shown, frame = state, self.draw(at).tobytes()
            yield frame

    def _describe(self, at: float) -> tuple[object, ...]:
        """Return what distinguishes this frame from others: its time, while anything moves."""
        sprites = self._stage.sprites
        if 0 <= at - self._leaves_at <= _LEAVE_SECONDS:
            return (at,)
        shown = [sprite for sprite in sprites if sprite.start <= at]
        if not all(sprite.is_settled(at) for sprite in shown) and at < self._leaves_at:
            return (at,)
        return at > self._leaves_at, len(shown)

    def _draw_parts(self, at: float) -> Image:
        """Draw on a copy of what no longer moves, which is drawn only when another part has arrived."""
        sprites = self._stage.sprites
        settled = [sprite.is_settled(at) for sprite in sprites]
        if self._settled is None or self._settled[0] != settled:
            base = self._ground.copy()
            for sprite, rests in zip(sprites, settled, strict=True):
                if rests:
                    place_sprite(base, sprite, at, self._stage.scale)
            self._settled = settled, base
        frame = self._settled[1].copy()
        for sprite, rests in zip(sprites, settled, strict=True):
            if not rests:
                place_sprite(frame, sprite, at, self._stage.scale)
        return frame


def draw_cover(picture: Picture, theme: Theme, random: Random, size: tuple[int, int]) -> Image:
    """Draw the picture's icon, large and without words, with room for words on its left."""
    colours = COLOURS[theme][random.choice(TONES)]
    stage = Stage(colours, size[0] / WIDTH)
    cover = draw_ground(colours, *size)
    x, y, wide = random.uniform(1320, 1460), random.uniform(420, 500), random.uniform(800, 900)
    stage.add(stage.draw_disc(wide), x, y, 0, "fade")
    if picture.main_icon:
        stage.add(stage.draw_icon(picture.main_icon, wide * 0.7), x, y, 0, "fade")
    for sprite in stage.sprites:
        place_sprite(cover, sprite, 1, stage.scale)
    return cover


def find_cues(picture: Picture, text: str, seconds: float) -> list[float]:
    """Return when each part appears: as its cue is spoken; without one, evenly between its neighbours."""
    spoken = max(seconds - _SCENE_PAUSE, 0.5)
    places = [text.find(cue) / max(len(text), 1) if cue else None for cue in picture.cues]
    return [max(FIRST + 0.2, place * spoken) for place in _fill_gaps(places)]


def _fill_gaps(places: Sequence[float | None]) -> list[float]:
    """Put the places that are None evenly between the known ones; the first is 0 and the last 0.8 if unknown."""
    known = [(at, place) for at, place in enumerate(places) if place is not None]
    if not known or known[0][0] > 0:
        known = [(0, 0.0), *known]
    if known[-1][0] < len(places) - 1:
        known = [*known, (len(places) - 1, max(0.8, known[-1][1]))]
    filled = []
    for at in range(len(places)):
        (a, left), (b, right) = next(
            ((one, other) for one, other in pairwise(known) if one[0] <= at <= other[0]),
            (known[0], known[0]),
        )
        filled.append(left if a == b else left + (right - left) * (at - a) / (b - a))
    return filled
