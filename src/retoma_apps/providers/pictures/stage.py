"""The stage of a picture: its colours, its texts and shapes, and the sprites that move on it.

Everything is laid out on 1920 by 1080 and scaled to the size of the frames. Pictures stay above `FLOOR`, below which
the subtitles are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from retoma_apps.providers import fonts
from retoma_apps.providers.pictures import icons
from retoma_apps.providers.pictures.icons import Point
from retoma_apps.providers.pictures.models import Kind, Theme, Tone

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

WIDTH, HEIGHT, FLOOR = 1920, 1080, 846
FIRST = 0.2
"""Seconds before the first part appears: until then the previous scene is still seen."""
_PREVIEW = 0.3
"""How visible a part is before it is spoken of."""
_LEADING = 1.2
_DESCENDERS = 0.1
"""How far letters reach above and below their row, relative to the size of the font."""
TEXT_HEIGHT = _LEADING + 2 * _DESCENDERS
"""The height of a row of drawn text, relative to the size of its font."""
_SUPERSAMPLING = 2
Move = Literal["rise", "pop", "fade", "right", "up"]
_MOVE_SECONDS: dict[Move, float] = {"rise": 0.55, "pop": 0.6, "fade": 0.4, "right": 0.6, "up": 0.9}
_RISE, _BOB, _BOB_SECONDS, _ORBIT_SECONDS = 46, 9, 4.2, 40
_TRIM = 0.012
"""The width of a curtain's edge, relative to the frame."""
TONES: tuple[Tone, ...] = ("dark", "light", "bright")


class Colours(NamedTuple):
    """`ground` is behind everything, with spots of `glow`; `card` is behind lists and `disc` behind icons. `ink` is the
    text, `soft` less important text and lines."""

    ground: str
    glow: str
    card: str
    disc: str
    ink: str
    soft: str
    accent: str


FLOORS: dict[Theme, str] = {"coffee": "#1d110b", "finance": "#0a1b2b", "nature": "#0c2118"}
COLOURS: dict[Theme, dict[Tone, Colours]] = {
    "coffee": {
        "dark": Colours("#3a2317", "#4c2f1f", "#5f3d29", "#f6e4c9", "#fff4e3", "#d9bd9c", "#f2a33c"),
        "light": Colours("#f7e9d3", "#fdf5e7", "#ffffff", "#eed5af", "#3a2317", "#80614b", "#c4541f"),
        "bright": Colours("#b9502a", "#c9663b", "#a3431f", "#fbe6cc", "#fff6ea", "#fbd9bd", "#ffd479"),
    },
    "finance": {
        "dark": Colours("#12324a", "#1a4361", "#245676", "#dcebf0", "#f3fafc", "#a9c8d6", "#ffc84a"),
        "light": Colours("#e8f2f3", "#f7fcfc", "#ffffff", "#c8e0e2", "#12324a", "#55737f", "#0f8a6d"),
        "bright": Colours("#0f7a63", "#168f75", "#0b6853", "#dcf2e8", "#f4fffa", "#bfe8d8", "#ffd45e"),
    },
    "nature": {
        "dark": Colours("#163d2c", "#1e4f39", "#2a654a", "#e2f1d6", "#f5fceb", "#aed3b4", "#ffd24d"),
        "light": Colours("#edf6e1", "#fafff2", "#ffffff", "#d3e6bf", "#163d2c", "#587a63", "#d9641c"),
        "bright": Colours("#2f7fa8", "#3d93bd", "#266d92", "#e4f4fa", "#f6fdff", "#c9e8f4", "#ffe07a"),
    },
}


_GLOWS: dict[Kind, tuple[tuple[int, int, int], ...]] = {
    "title": ((1560, 210, 620), (210, 820, 430)),
    "steps": ((960, 1180, 760), (1840, 60, 300)),
    "icons": ((960, -420, 900), (160, 900, 340)),
    "flow": ((330, 500, 700), (1800, 880, 330)),
    "diagram": ((960, 520, 640),),
    "comparison": ((60, 40, 330), (1880, 60, 260)),
    "chart": ((1700, 1020, 820), (300, -80, 380)),
    "timeline": ((-120, 500, 560), (960, 1120, 520), (2040, 260, 520)),
    "number": ((1290, 500, 600), (120, 60, 260)),
}
"""The soft discs behind each kind of picture: x, y and radius."""


@dataclass(frozen=True)
class Sprite:
    """A drawn part and how it appears: its middle on the stage, when, with which move, and whether it then floats.

    The `layer` of an icon that moves never rests, nor does a part in an `orbit`: its radius, and its start in turns.
    A part is seen until its `end`.
    """

    image: Image
    x: float
    y: float
    start: float
    move: Move = "rise"
    floats: bool = False
    layer: icons.Layer | None = None
    orbit: tuple[float, float] | None = None
    end: float = math.inf

    def is_shown(self, at: float) -> bool:
        return self.start <= at < self.end

    def compute_progress(self, at: float) -> float:
        return min(max((at - self.start) / _MOVE_SECONDS[self.move], 0.0), 1.0)

    def is_settled(self, at: float) -> bool:
        is_moving = self.floats or self.layer or self.orbit
        return at < self.end and self.compute_progress(at) >= 1 and not is_moving

    def draw(self, at: float) -> Image:
        return icons.move_layer(self.image, self.layer, at) if self.layer and self.layer.motion else self.image


@dataclass
class Stage:
    """Draws in these colours and collects sprites from back to front. `first` is when the first one may appear,
    `spoken_until` is when the words end, and `lowered` how far everything is moved down."""

    colours: Colours
    scale: float
    spoken_until: float = 0
    first: float = FIRST
    lowered: float = 0
    sprites: list[Sprite | Counter] = field(default_factory=list)

    def add(self, image: Image, x: float, y: float, start: float, move: Move = "rise", *, floats: bool = False) -> None:
        self.sprites.append(Sprite(image, x, y + self.lowered, start, move, floats))

    def add_preview(self, image: Image, x: float, y: float, start: float, end: float = math.inf) -> None:
        """Add a part faintly, before it is spoken of. If the part itself fades in over it, it needs no `end`."""
        self.sprites.append(Sprite(_fade(image, _PREVIEW), x, y + self.lowered, start, "fade", end=end))

    def add_icon_preview(self, name: str, size: float, x: float, y: float, start: float) -> None:
        self.add_preview(icons.draw_icon(name, round(size * self.scale)), x, y, start)

    def add_counter(self, draw: Callable[[float], Image], x: float, y: float, start: float) -> None:
        self.sprites.append(Counter(draw, x, y + self.lowered, start))

    def measure(self, image: Image) -> tuple[float, float]:
        """Return the width and height of a drawn part on the stage."""
        return image.width / self.scale, image.height / self.scale

    def add_icon(
        self, name: str, size: float, x: float, y: float, start: float, move: Move = "pop", *, floats: bool = False
    ) -> None:
        """Add an icon, whose layers move."""
        layers = icons.get_layers(name)
        for layer in layers:
            drawn = icons.draw_shapes(layer.shapes, round(size * self.scale))
            # If one layer moves, all are drawn in every frame, in their order.
            part = layer if any(each.motion for each in layers) else None
            self.sprites.append(Sprite(drawn, x, y + self.lowered, start, move, floats, part))

    def add_icon_on_disc(
        self, name: str, size: float, x: float, y: float, start: float, *, floats: bool = False
    ) -> None:
        self.add(self.draw_disc(size), x, y, start, "pop", floats=floats)
        self.add_icon(name, size * 0.66, x, y, start, floats=floats)

    def draw_text(
        self,
        text: str,
        size: float,
        width: float,
        *,
        weight: str = "Bold",
        colour: str = "",
        align: Literal["left", "center", "right"] = "left",
        rows: int = 3,
    ) -> Image:
        """Draw wrapped text, smaller if it does not fit into so many rows of this width."""
        lines, font = self._fit_text(text, size, width, weight, rows)
        return _draw_rows(lines, font, colour or self.colours.ink, align)

    def _fit_text(self, text: str, size: float, width: float, weight: str, rows: int) -> tuple[list[str], FreeTypeFont]:
        while True:
            font = _load_font(max(round(size * self.scale), 1), weight)
            lines = _wrap(text, font, width * self.scale)
            fits = len(lines) <= rows and all(font.getlength(line) <= width * self.scale for line in lines)
            if fits or size <= 20:
                return lines, font
            size *= 0.94

    def draw_shape(self, wide: float, high: float, draw: Callable[[Pen], None]) -> Image:
        """Draw shapes with clean edges on a transparent picture of this size."""
        from PIL import Image

        size = max(math.ceil(wide * self.scale), 1), max(math.ceil(high * self.scale), 1)
        pen = Pen((size[0] * _SUPERSAMPLING, size[1] * _SUPERSAMPLING), self.scale * _SUPERSAMPLING)
        draw(pen)
        return pen.image.convert("RGBa").resize(size, Image.Resampling.BOX).convert("RGBA")

    def add_orbit(self, names: Sequence[str], size: float, radius: float, x: float, y: float, start: float) -> None:
        """Add icons on small discs that circle a point."""
        for at, name in enumerate(names):
            disc, icon = self.draw_disc(size, self.colours.card), icons.draw_icon(name, round(size * 0.62 * self.scale))
            disc.alpha_composite(icon, ((disc.width - icon.width) // 2, (disc.height - icon.height) // 2))
            orbit = radius, at / len(names)
            self.sprites.append(Sprite(disc, x, y + self.lowered, start + at * 0.18, "pop", orbit=orbit))

    def draw_ring(self, size: float, share: float, colour: str) -> Image:
        """Draw a share of a ring, from its top."""
        return self.draw_shape(size, size, lambda pen: pen.draw_arc(size, 34, share, colour))

    def draw_disc(self, size: float, colour: str = "") -> Image:
        return self.draw_shape(size, size, lambda pen: pen.draw_oval(0, 0, size, size, colour or self.colours.disc))

    def draw_card(self, wide: float, high: float, radius: float = 36, colour: str = "") -> Image:
        return self.draw_shape(
            wide, high, lambda pen: pen.draw_box(0, 0, wide, high, radius, colour or self.colours.disc)
        )


class Pen:
    """Draws on a picture in the units of the stage."""

    def __init__(self, size: tuple[int, int], scale: float) -> None:
        from PIL import Image, ImageDraw

        self.image = Image.new("RGBA", size)
        self._draw = ImageDraw.Draw(self.image)
        self._scale = scale

    def draw_oval(self, left: float, top: float, right: float, bottom: float, colour: str) -> None:
        self._draw.ellipse(self._scale_box(left, top, right, bottom), colour)

    def draw_box(self, left: float, top: float, right: float, bottom: float, radius: float, colour: str) -> None:
        self._draw.rounded_rectangle(self._scale_box(left, top, right, bottom), radius * self._scale, colour)

    def draw_arc(self, size: float, width: float, share: float, colour: str) -> None:
        box = self._scale_box(0, 0, size, size)
        self._draw.arc(box, -90, -90 + 360 * share, colour, round(width * self._scale))

    def draw_line(self, points: Sequence[Point], colour: str, width: float) -> None:
        scaled = [(x * self._scale, y * self._scale) for x, y in points]
        icons.draw_line(self._draw, scaled, colour, width * self._scale)

    def _scale_box(self, *numbers: float) -> tuple[float, float, float, float]:
        left, top, right, bottom = (each * self._scale for each in numbers)
        return left, top, max(right - 1, left), max(bottom - 1, top)


@dataclass(frozen=True)
class Counter:
    """A number that counts up to its value; `draw` returns the picture of a share of it."""

    draw: Callable[[float], Image]
    x: float
    y: float
    start: float
    seconds: float = 1.1

    def is_shown(self, at: float) -> bool:
        return at >= self.start

    def compute_progress(self, at: float) -> float:
        return min(max((at - self.start) / self.seconds, 0.0), 1.0)

    def is_settled(self, at: float) -> bool:
        return self.compute_progress(at) >= 1


def place_sprite(frame: Image, sprite: Sprite | Counter, at: float, scale: float) -> None:
    """Draw a sprite into the frame as it is at this time; nothing before its start or after its end."""
    if not sprite.is_shown(at):
        return
    done = sprite.compute_progress(at)
    if isinstance(sprite, Counter):
        _paste(frame, sprite.draw(_ease_out(done)), sprite.x * scale, sprite.y * scale)
        return
    image, x, y = sprite.draw(at), sprite.x * scale, sprite.y * scale
    if sprite.orbit:
        radius, turns = sprite.orbit
        angle = (turns + at / _ORBIT_SECONDS) * math.tau
        x, y = x + radius * scale * math.cos(angle), y + radius * scale * math.sin(angle)
    if sprite.floats:
        y += math.sin((at - sprite.start) * math.tau / _BOB_SECONDS) * _BOB * scale
    if done >= 1:
        _paste(frame, image, x, y)
    elif sprite.move == "right":
        shown = image.crop((0, 0, max(round(image.width * _ease_out(done)), 1), image.height))
        _paste(frame, shown, x - (image.width - shown.width) / 2, y)
    elif sprite.move == "up":
        shown = image.crop((0, 0, image.width, max(round(image.height * _ease_out(done)), 1)))
        _paste(frame, shown, x, y + (image.height - shown.height) / 2)
    elif sprite.move == "pop":
        size = 0.4 + 0.6 * _ease_back(done)
        grown = image.resize((max(round(image.width * size), 1), max(round(image.height * size), 1)))
        _paste(frame, _fade(grown, min(done * 2.5, 1)), x, y)
    else:
        offset = _RISE * scale * (1 - _ease_out(done)) if sprite.move == "rise" else 0
        _paste(frame, _fade(image, _ease_out(done)), x, y + offset)


def draw_ground(colours: Colours, width: int, height: int, kind: Kind = "title") -> Image:
    """Draw the ground with soft discs of light, which are elsewhere for each kind of picture."""
    from PIL import Image, ImageDraw

    ground = Image.new("RGB", (width, height), colours.ground)
    draw, unit = ImageDraw.Draw(ground), width / WIDTH
    for x, y, radius in _GLOWS[kind]:
        draw.ellipse(tuple(each * unit for each in (x - radius, y - radius, x + radius, y + radius)), colours.glow)
    return ground


def draw_floor(ground: Image, floor: str, edge: str) -> None:
    """Draw the floor for the subtitles."""
    from PIL import ImageDraw

    draw, unit = ImageDraw.Draw(ground), ground.width / WIDTH
    draw.rectangle((0, FLOOR * unit, ground.width, ground.height), floor)
    draw.rectangle((0, FLOOR * unit, ground.width, (FLOOR + 7) * unit), edge)


def draw_curtain(frame: Image, colour: str, edge: str, number: int, moved: float) -> Image:
    """Draw a curtain over the frame: it covers nothing at 0 and at 2, and everything at 1. Its direction depends on the
    number."""
    from PIL import ImageDraw

    covered = frame.copy()
    is_wide, is_backwards = number % 2 == 0, number % 4 >= 2
    length = frame.width if is_wide else frame.height
    start, end = (0.0, moved**3) if moved <= 1 else (_ease_out(moved - 1), 1.0)
    for near, far, fill in ((start - _TRIM, end + _TRIM, edge), (start if moved > 1 else -1, end, colour)):
        low, high = ((1 - far) * length, (1 - near) * length) if is_backwards else (near * length, far * length)
        box = (low, 0, high, frame.height) if is_wide else (0, low, frame.width, high)
        ImageDraw.Draw(covered).rectangle(box, fill)
    return covered


def _paste(frame: Image, image: Image, x: float, y: float) -> None:
    frame.paste(image, (round(x - image.width / 2), round(y - image.height / 2)), image)


def _fade(image: Image, share: float) -> Image:
    if share >= 1:
        return image
    faded = image.copy()
    faded.putalpha(image.getchannel("A").point([round(value * share) for value in range(256)]))
    return faded


def _ease_out(done: float) -> float:
    return 1 - (1 - done) ** 3


def _ease_back(done: float) -> float:
    """Overshoot a little and come back."""
    return 1 + 2.2 * (done - 1) ** 3 + 1.2 * (done - 1) ** 2


@cache
def _load_font(size: int, weight: str) -> FreeTypeFont:
    return fonts.load_font(size, weight)


def _wrap(text: str, font: FreeTypeFont, width: float) -> list[str]:
    """Break the text into rows of about equal length: a last row with one short word looks like a mistake."""
    lines = _wrap_greedily(text, font, width)
    narrow = width
    while len(lines) > 1 and narrow > width / 2:
        narrow *= 0.95
        tried = _wrap_greedily(text, font, narrow)
        if len(tried) > len(lines) or any(font.getlength(line) > width for line in tried):
            break
        lines = tried
    return lines


def _wrap_greedily(text: str, font: FreeTypeFont, width: float) -> list[str]:
    lines: list[str] = []
    for word in text.split(" "):
        if lines and font.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _draw_rows(
    lines: Sequence[str], font: FreeTypeFont, colour: str, align: Literal["left", "center", "right"]
) -> Image:
    from PIL import Image, ImageDraw

    wide, high = math.ceil(max(font.getlength(line) for line in lines)) + 4, round(font.size * _LEADING)
    room = math.ceil(font.size * _DESCENDERS)
    drawn = Image.new("RGBA", (max(wide, 1), max(high * len(lines) + 2 * room, 1)), f"{colour}00")
    draw = ImageDraw.Draw(drawn)
    places = {"left": (0, "lm"), "center": (wide / 2, "mm"), "right": (wide, "rm")}
    x, anchor = places[align]
    for row, line in enumerate(lines):
        draw.text((x, room + high * (row + 0.5)), line, colour, font, anchor)
    return drawn
