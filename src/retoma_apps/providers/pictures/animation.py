"""Turn a picture into frames: parts appear in time with the narration, and stay until the next scene."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from retoma_apps.providers.pictures.layouts import arrange
from retoma_apps.providers.pictures.models import Picture, Theme
from retoma_apps.providers.pictures.stage import (
    COLOURS,
    FIRST,
    FLOOR,
    FLOORS,
    HEIGHT,
    TONES,
    WIDTH,
    Stage,
    draw_curtain,
    draw_floor,
    draw_ground,
    place_sprite,
)

if TYPE_CHECKING:
    from PIL.Image import Image

VARIANTS = len(TONES)
PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.7, 1.2
"""Seconds without words at the end of a scene, and at the end of the last one."""
_CURTAIN_SECONDS = 0.3
_ENDING_SECONDS, _ENDING_SHARE = 0.5, 0.75
"""How long the last scene takes to fade, and how far: an ending without any picture looks like a fault."""
_BEGUN = -0.7
"""When the first part of the first scene appears: the title is there in the first frame."""
_LONG_AGO = -60.0
_LOWERED = (HEIGHT - FLOOR) * 0.4
"""How far a picture without subtitles is moved down: a player may show its own there."""


@dataclass(frozen=True)
class Scene:
    """A picture and the words that are spoken meanwhile. `variant` chooses other colours of the theme; `is_first` and
    `is_last` say that no scene comes before or after it.

    If only a `part` of the text is spoken, parts of the picture that belong to the words before it are there from the
    start, and those of the words after it do not appear.
    """

    picture: Picture
    text: str
    theme: Theme
    variant: int = 0
    is_first: bool = False
    is_last: bool = False
    part: str = ""

    @property
    def is_start(self) -> bool:
        return self.text.startswith(self.part)

    @property
    def is_end(self) -> bool:
        return self.text.endswith(self.part)


@dataclass(frozen=True)
class _Edges:
    """When a curtain has opened, when one closes and when the picture fades, in seconds; infinite for what does not
    happen."""

    opened: float
    closes: float
    fades: float

    def is_moving(self, at: float) -> bool:
        return at < self.opened or at > min(self.closes, self.fades)


class Animation:
    """`seconds` is how long the scene lasts; the last one fades.

    With `subtitles`, the picture leaves room for them and begins empty, so that it can slide in over the scene before.
    Without them, it fills the frame, and curtains hide it at both ends, so clips can be joined unchanged. `number` is
    the scene's: the curtains of neighbours move in the same direction.
    """

    def __init__(
        self, scene: Scene, seconds: float, size: tuple[int, int], *, subtitles: bool = True, number: int = 0
    ) -> None:
        colours = COLOURS[scene.theme][TONES[(TONES.index(scene.picture.tone) + scene.variant) % len(TONES)]]
        self._complete_at = seconds - _ENDING_SECONDS
        self._edges = _plan_edges(scene, seconds, has_curtains=not subtitles)
        self._number, self._dark = number, FLOORS[scene.theme]
        self._stage = Stage(
            colours,
            size[0] / WIDTH,
            spoken_until=_measure_speech(seconds, is_last=scene.is_last),
            first=_find_first(scene),
            lowered=0 if subtitles else _LOWERED,
        )
        self._ground = draw_ground(colours, *size, scene.picture.kind)
        if subtitles:
            draw_floor(self._ground, self._dark, colours.accent)
        arrange(scene.picture, self._stage, find_cues(scene, seconds))
        self._settled: tuple[list[bool], Image] | None = None

    def draw(self, at: float) -> Image:
        """Draw the frame at this time of the scene, in seconds."""
        frame, edges = self._draw_parts(at), self._edges
        if at < edges.opened:
            return self._draw_curtain(frame, self._number, 1 + at / _CURTAIN_SECONDS)
        if at > edges.closes:
            return self._draw_curtain(frame, self._number + 1, (at - edges.closes) / _CURTAIN_SECONDS)
        if at > edges.fades:
            return _fade_to(frame, self._dark, min((at - edges.fades) / _ENDING_SECONDS, 1) * _ENDING_SHARE)
        return frame

    def _draw_curtain(self, frame: Image, number: int, moved: float) -> Image:
        return draw_curtain(frame, self._dark, self._stage.colours.accent, number, min(moved, 2))

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
        shown = [sprite for sprite in self._stage.sprites if sprite.is_shown(at)]
        if self._edges.is_moving(at) or not all(sprite.is_settled(at) for sprite in shown):
            return (at,)
        return (len(shown),)

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


def _plan_edges(scene: Scene, seconds: float, *, has_curtains: bool) -> _Edges:
    opens = has_curtains and scene.is_start and not scene.is_first
    closes = has_curtains and scene.is_end and not scene.is_last
    return _Edges(
        opened=_CURTAIN_SECONDS if opens else 0,
        closes=seconds - _CURTAIN_SECONDS if closes else math.inf,
        fades=seconds - _ENDING_SECONDS if scene.is_last else math.inf,
    )


def _find_first(scene: Scene) -> float:
    if not scene.is_start:
        return _LONG_AGO
    return _BEGUN if scene.is_first else FIRST


def _fade_to(frame: Image, colour: str, share: float) -> Image:
    from PIL import Image

    return Image.blend(frame, Image.new("RGB", frame.size, colour), share)


def find_cues(scene: Scene, seconds: float) -> list[float]:
    """Return when each part of the picture appears: as its cue is spoken; without one, evenly between its neighbours.

    If only a part of the text is spoken, the time of earlier cues is long ago, and that of later ones infinite.
    """
    text, start, length = scene.text, scene.text.find(scene.part), max(len(scene.part or scene.text), 1)
    places = _fill_gaps([text.find(cue) if cue and cue in text else None for cue in scene.picture.cues], len(text))
    spoken = _measure_speech(seconds, is_last=scene.is_last)
    return [_find_time((place - start) / length, spoken, is_start=start == 0) for place in places]


def _measure_speech(seconds: float, *, is_last: bool) -> float:
    """Return how long a scene of this length is spoken."""
    return max(seconds - (LAST_PAUSE_SECONDS if is_last else PAUSE_SECONDS), 0.5)


def _find_time(share: float, spoken: float, *, is_start: bool) -> float:
    if share >= 1:
        return math.inf
    if share < 0:
        return _LONG_AGO
    return max(FIRST + 0.2 if is_start else 0.0, share * spoken)


def _fill_gaps(places: Sequence[float | None], length: float) -> list[float]:
    """Put the places that are None evenly between the known ones; if unknown, the first is 0 and the last at 80 % of
    the length."""
    known = [(at, place) for at, place in enumerate(places) if place is not None]
    if not known or known[0][0] > 0:
        known = [(0, 0.0), *known]
    if known[-1][0] < len(places) - 1:
        known = [*known, (len(places) - 1, max(0.8 * length, known[-1][1]))]
    filled = []
    for at in range(len(places)):
        (a, left), (b, right) = next(
            ((one, other) for one, other in pairwise(known) if one[0] <= at <= other[0]),
            (known[0], known[0]),
        )
        filled.append(left if a == b else left + (right - left) * (at - a) / (b - a))
    return filled
