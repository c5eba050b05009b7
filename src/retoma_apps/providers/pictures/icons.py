"""Draw icons from the flat shapes in `icons.toml`. An icon may have layers that move."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

Point = tuple[float, float]
Motion = Literal["", "spin", "swing", "bob", "sway", "drip", "rise", "pulse", "flicker"]
_SUPERSAMPLING = 3
"""Icons are drawn at this multiple of their size and scaled down, for clean edges."""
_CURVE_STEPS = 12
_OVAL_STEPS = 72
_COLOURS = {
    "clay": "#a4643c",
    "coffee": "#5b3420",
    "cream": "#fbeeda",
    "dark": "#33261f",
    "gold": "#d99a1c",
    "green": "#3f9b57",
    "grey": "#8d99a6",
    "ice": "#cfeaf5",
    "leaf": "#2c7a4b",
    "lime": "#9ccf5a",
    "olive": "#8d9a4e",
    "orange": "#f08a2c",
    "red": "#d8433b",
    "roast": "#7d4a2c",
    "rose": "#f08a80",
    "sand": "#e6c79c",
    "skin": "#e8b58d",
    "sky": "#4aa8d8",
    "steel": "#5f6f80",
    "white": "#ffffff",
    "wood": "#7a4b2a",
    "yellow": "#ffcf4a",
}


@dataclass(frozen=True)
class Layer:
    """Shapes that move together, around a point of the icon in per cent."""

    shapes: tuple[tuple[str, ...], ...]
    motion: Motion = ""
    pivot: Point = (50, 50)


@cache
def _load_icons() -> dict[str, tuple[Layer, ...]]:
    icons = tomllib.loads((Path(__file__).parent / "icons.toml").read_text("utf-8"))
    return {name: tuple(_read_layers(drawn)) for name, drawn in icons.items()}


def _read_layers(drawn: str) -> Iterator[Layer]:
    """Yield a layer for each motion in the text, in the order in which they are drawn."""
    motion, pivot, shapes = "", (50.0, 50.0), list[tuple[str, ...]]()
    for words in (tuple(line.split()) for line in [*drawn.strip().splitlines(), "still"]):
        if words[0] not in (*get_args(Motion), "still"):
            shapes.append(words)
            continue
        if shapes:
            yield Layer(tuple(shapes), motion, pivot)  # type: ignore[arg-type]
        x, y = words[1:] or (50, 50)
        motion, pivot, shapes = words[0] if words[0] != "still" else "", (float(x), float(y)), []


def list_icons() -> list[str]:
    return sorted(_load_icons())


def get_layers(name: str) -> tuple[Layer, ...]:
    return _load_icons()[name]


def draw_icon(name: str, size: int) -> Image:
    """Draw a square picture that is transparent around the icon."""
    return draw_shapes([shape for layer in get_layers(name) for shape in layer.shapes], size)


def draw_shapes(shapes: Sequence[Sequence[str]], size: int) -> Image:
    from PIL import Image, ImageDraw

    full = max(size, 1) * _SUPERSAMPLING
    canvas = Image.new("RGBA", (full, full))
    draw = ImageDraw.Draw(canvas)
    for shape, colour, *numbers in shapes:
        _draw_shape(draw, shape, _COLOURS[colour], [float(each) * full / 100 for each in numbers], full)
    # Premultiplied, so the transparent black around the icon does not darken its edges.
    return canvas.convert("RGBa").resize((max(size, 1),) * 2, Image.Resampling.BOX).convert("RGBA")


def move_layer(drawn: Image, layer: Layer, at: float) -> Image:
    """Return the drawn layer as it is moved at this time, in seconds."""
    from PIL import Image

    angle, grow_x, grow_y, dx, dy, alpha = _MOTIONS[layer.motion](at)
    size = drawn.width
    x, y = layer.pivot[0] * size / 100, layer.pivot[1] * size / 100
    cos, sin = math.cos(angle), math.sin(angle)
    a, b, d, e = cos / grow_x, sin / grow_x, -sin / grow_y, cos / grow_y
    px, py = x + dx * size / 100, y + dy * size / 100
    moved = drawn.convert("RGBa").transform(
        drawn.size,
        Image.Transform.AFFINE,
        (a, b, x - a * px - b * py, d, e, y - d * px - e * py),
        Image.Resampling.BILINEAR,
    )
    if alpha < 1:
        moved = Image.blend(Image.new("RGBa", drawn.size), moved, alpha)
    return moved.convert("RGBA")


def _wave(at: float, seconds: float) -> float:
    return math.sin(at * math.tau / seconds)


def _loop(at: float, seconds: float, dy: float) -> tuple[float, ...]:
    """Move up or down, fading in and out, again and again."""
    done = at % seconds / seconds
    return 0, 1, 1, 0, dy * (done - 0.5), math.sin(done * math.pi) ** 0.5


_MOTIONS: dict[str, Callable[[float], tuple[float, ...]]] = {
    "spin": lambda at: (at * math.tau / 14, 1, 1, 0, 0, 1),
    "swing": lambda at: (0.06 * _wave(at, 3.2), 1, 1, 0, 0, 1),
    "bob": lambda at: (0, 1, 1, 0, 2.2 * _wave(at, 2.4), 1),
    "sway": lambda at: (0, 1, 1, 2.6 * _wave(at, 3.6), 0, 1),
    "drip": lambda at: _loop(at, 1.1, 14),
    "rise": lambda at: _loop(at, 2.6, -10),
    "pulse": lambda at: (0, 1 + 0.05 * _wave(at, 1.8), 1 + 0.05 * _wave(at, 1.8), 0, 0, 1),
    "flicker": lambda at: (0.02 * _wave(at, 0.9), 1 + 0.02 * _wave(at, 0.7), 1 + 0.06 * _wave(at, 0.53), 0, 0, 1),
}
"""The angle, the growth in both directions, the way in per cent of the icon's size, and the opacity at a time."""


def _draw_shape(draw: ImageDraw, shape: str, colour: str, numbers: Sequence[float], full: int) -> None:
    match shape:
        case "oval":
            x, y, wide, high, *turn = numbers
            draw.polygon(
                list(_trace_oval((x, y), wide, high, math.radians(turn[0] * 100 / full) if turn else 0)), colour
            )
        case "box":
            left, top, right, bottom, *radius = numbers
            draw.rounded_rectangle((left, top, right, bottom), radius[0] if radius else 0, colour)
        case "poly":
            draw.polygon(_pair_numbers(numbers), colour)
        case "blob":
            draw.polygon(smooth_curve(_pair_numbers(numbers), closed=True), colour)
        case "line" | "curve":
            points = _pair_numbers(numbers[1:])
            draw_line(draw, smooth_curve(points) if shape == "curve" else points, colour, numbers[0])
        case _:
            raise ValueError(f"unknown shape {shape!r}")


def draw_line(draw: ImageDraw, points: Sequence[Point], colour: str, width: float) -> None:
    """Draw a line with round joints and ends."""
    draw.line(list(points), colour, max(round(width), 1), "curve")
    for x, y in (points[0], points[-1]):
        radius = width / 2
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), colour)


def smooth_curve(points: Sequence[Point], *, closed: bool = False) -> list[Point]:
    """Return a Catmull-Rom spline through the points."""
    around = [points[-1], *points, points[0], points[1]] if closed else [points[0], *points, points[-1]]
    return [
        _interpolate(around[at : at + 4], step / _CURVE_STEPS)
        for at in range(len(around) - 3)
        for step in range(_CURVE_STEPS + 1)
    ]


def _interpolate(points: Sequence[Point], at: float) -> Point:
    a, b, c, d = points
    x, y = (
        0.5 * (2 * q + (r - p) * at + (2 * p - 5 * q + 4 * r - s) * at**2 + (3 * q - p - 3 * r + s) * at**3)
        for p, q, r, s in zip(a, b, c, d, strict=True)
    )
    return x, y


def _trace_oval(middle: Point, wide: float, high: float, turn: float) -> Iterator[Point]:
    for step in range(_OVAL_STEPS):
        angle = math.tau * step / _OVAL_STEPS
        x, y = wide * math.cos(angle), high * math.sin(angle)
        yield (
            middle[0] + x * math.cos(turn) - y * math.sin(turn),
            middle[1] + x * math.sin(turn) + y * math.cos(turn),
        )


def _pair_numbers(numbers: Sequence[float]) -> list[Point]:
    return list(zip(numbers[::2], numbers[1::2], strict=True))
