"""Draw pictures from text. The same text always produces the same colours, shapes and positions."""

from __future__ import annotations

import colorsys
import math
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING

from retoma_apps.providers import fonts

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

Colour = tuple[int, int, int]
MOTIFS = ("discs", "rings", "bars", "dots", "waves")
_SUPERSAMPLING = 2
"""Shapes are drawn at this multiple of their size and scaled down, for clean edges."""
_LONGEST_TEXT = 80
_MOST_LINES = 3


@dataclass(frozen=True)
class Palette:
    """`ground` is dark enough for white text."""

    ground: tuple[Colour, ...]
    accents: tuple[Colour, ...]


def seeded_random(*words: str) -> Random:
    """Return a random generator seeded by these words, with the same sequence on every machine."""
    return Random(sha256("\0".join(words).encode(errors="surrogatepass")).digest())  # noqa: S311, not for security


def create_palette(random: Random) -> Palette:
    """Choose hues from teal through blue and violet to orange: full-screen greens look bad."""
    hue, turn = random.uniform(0.46, 1.08), random.choice((-1, 1)) * random.uniform(0.05, 0.1)
    steps = ((0, 0.15), (0.4, 0.24), (0.8, 0.33), (1.2, 0.4))
    ground = [_colour(hue + turn * step, random.uniform(0.5, 0.7), light) for step, light in steps]
    accents = [_colour(hue + 0.5, 0.8, 0.65), _colour(hue - turn, 0.7, 0.7), (255, 255, 255)]
    return Palette(tuple(ground), tuple(accents))


def draw_gradient(colours: Palette, random: Random, width: int, height: int) -> Image:
    """Draw a few colours that blend into each other, by enlarging an image of a few pixels."""
    from PIL import Image

    seed = _new_image("RGB", 5, 3)
    seed.putdata([random.choice(colours.ground) for _ in range(15)])
    return seed.resize((width, height), Image.Resampling.BICUBIC)


def draw_shape(motif: str, colours: Palette, random: Random, size: int) -> Image:
    """Draw a square picture that is transparent around the shape."""
    from PIL import Image, ImageDraw

    layer = _new_image("L", size * _SUPERSAMPLING, size * _SUPERSAMPLING)
    _MOTIFS[motif](ImageDraw.Draw(layer), random, size * _SUPERSAMPLING)
    alpha = layer.resize((size, size), Image.Resampling.LANCZOS)
    shape = Image.new("RGBA", (size, size), random.choice(colours.accents))
    shape.putalpha(alpha)
    return shape


def draw_text(text: str, width: int, height: int) -> Image:
    """Draw white text with a soft shadow, as large as fits well into the picture; transparent around it."""
    from PIL import Image, ImageDraw, ImageFilter

    lines, size = _choose_layout(_printable(text), width * 0.76, height * 0.5)
    mask = _new_image("L", width, height)
    ImageDraw.Draw(mask).multiline_text(
        (width / 2, height / 2), "\n".join(lines), 255, fonts.load_font(size), "mm", size * 0.1, "center"
    )
    soft = mask.filter(ImageFilter.GaussianBlur(max(size / 10, 1))).point(lambda value: round(value * 0.6))
    shadow, white = Image.new("RGBA", mask.size, (0, 0, 0)), Image.new("RGBA", mask.size, (255, 255, 255))
    shadow.putalpha(soft)
    white.putalpha(mask)
    return Image.alpha_composite(shadow, white)


def _new_image(mode: str, width: int, height: int) -> Image:
    from PIL import Image

    return Image.new(mode, (width, height))


def _colour(hue: float, saturation: float, light: float) -> Colour:
    red, green, blue = colorsys.hls_to_rgb(hue % 1, light, saturation)
    return round(red * 255), round(green * 255), round(blue * 255)


def _printable(text: str) -> str:
    """Return the text without unprintable characters and line breaks, shortened."""
    plain = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    short = plain[:_LONGEST_TEXT].rstrip()
    return short if short == plain else f"{short}…"


def _choose_layout(text: str, width: float, height: float) -> tuple[list[str], int]:
    """Return the lines, and the largest font size at which they fit."""
    best: tuple[list[str], int] = ([text], 1)
    for count in range(1, _MOST_LINES + 1):
        lines = _break_lines(text.split(), count)
        size = _fit_font_size(lines, width, height)
        best = (lines, size) if size > best[1] else best
    return best


def _fit_font_size(lines: list[str], width: float, height: float) -> int:
    tried = 100
    widest = max(fonts.load_font(tried).getlength(line) for line in lines)
    largest = min(tried * width / max(widest, 1.0), height / (len(lines) * 1.45), height * 0.28)
    return max(int(largest), 1)


def _break_lines(words: list[str], count: int) -> list[str]:
    """Split into at most `count` lines of about equal length."""
    lines, wanted = [""], sum(len(word) + 1 for word in words) / count
    for word in words:
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(lines) < count and len(longer) - len(word) / 2 > wanted:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _discs(draw: ImageDraw, random: Random, size: int) -> None:
    for _ in range(5):
        radius = size * random.uniform(0.06, 0.2)
        x, y = (random.uniform(radius, size - radius) for _ in "xy")
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), random.randint(30, 80))


def _rings(draw: ImageDraw, random: Random, size: int) -> None:
    for step in range(4):
        inset = size * (0.04 + step * random.uniform(0.1, 0.12))
        draw.ellipse((inset, inset, size - inset, size - inset), None, random.randint(50, 100), max(size // 90, 2))


def _bars(draw: ImageDraw, random: Random, size: int) -> None:
    for step in range(6):
        left, thick = size * (0.1 + step * 0.11), size * random.uniform(0.01, 0.05)
        top, tall = size * random.uniform(0.05, 0.3), size * random.uniform(0.3, 0.6)
        slant = tall * 0.4
        corners = [(left + slant, top), (left + slant + thick, top), (left + thick, top + tall), (left, top + tall)]
        draw.polygon(corners, random.randint(40, 90))


def _dots(draw: ImageDraw, random: Random, size: int) -> None:
    cells = 9
    cell, radius = size / cells, size / cells / 9
    for index in range(cells * cells):
        x, y = (index % cells + 0.5) * cell, (index // cells + 0.5) * cell
        grown = radius * random.uniform(0.6, 1.8)
        draw.ellipse((x - grown, y - grown, x + grown, y + grown), random.randint(50, 120))


def _waves(draw: ImageDraw, random: Random, size: int) -> None:
    length, phase = size / random.uniform(1.2, 2.4), random.uniform(0, math.tau)
    for step in range(6):
        level, rise = size * (0.2 + step * 0.11), size * 0.08
        line = [(x, level + rise * math.sin(x / length * math.tau + phase + step * 0.5)) for x in range(0, size, 4)]
        draw.line(line, 50 + step * 12, max(size // 160, 2), "curve")


_MOTIFS = {"discs": _discs, "rings": _rings, "bars": _bars, "dots": _dots, "waves": _waves}
