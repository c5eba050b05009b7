"""Draw icons from the flat shapes in `icons.toml`."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

Point = tuple[float, float]
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


@cache
def _load_shapes() -> dict[str, list[list[str]]]:
    icons = tomllib.loads((Path(__file__).parent / "icons.toml").read_text("utf-8"))
    return {name: [line.split() for line in drawn.strip().splitlines()] for name, drawn in icons.items()}


def list_icons() -> list[str]:
    return sorted(_load_shapes())


def draw_icon(name: str, size: int) -> Image:
    """Draw a square picture that is transparent around the icon."""
    from PIL import Image, ImageDraw

    full = max(size, 1) * _SUPERSAMPLING
    canvas = Image.new("RGBA", (full, full))
    draw = ImageDraw.Draw(canvas)
    for shape, colour, *numbers in _load_shapes()[name]:
        _draw_shape(draw, shape, _COLOURS[colour], [float(each) * full / 100 for each in numbers], full)
    # Premultiplied, so the transparent black around the icon does not darken its edges.
    return canvas.convert("RGBa").resize((max(size, 1),) * 2, Image.Resampling.BOX).convert("RGBA")


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
