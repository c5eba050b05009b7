"""Draw thumbnails: a picture with few, large words that are readable on a phone."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from retoma_apps.media.atomic_write import write_atomically
from retoma_apps.media.models import LONGEST_THUMBNAIL_TEXT
from retoma_apps.providers import fonts
from retoma_apps.providers.pictures import draw_cover
from retoma_apps.providers.topics import read_drawing

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

SIZE = (1280, 720)
MAX_BYTES = 2_000_000
"""YouTube's limit."""
Layout = Literal["left", "bottom", "centre"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)

_MOST_PIXELS = 50_000_000
_SIZES = (150, 132, 116, 102, 90, 78, 68, 60, 52, 46, 40, 34, 28)
_LEADING = 1.12
_LONGEST_WORD = 24
"""Characters of a word that fits beside an icon."""
Box = tuple[int, int, int, int]
_BOXES: dict[Layout, Box] = {
    "left": (64, 60, 800, 660),
    "bottom": (64, 370, 1216, 640),
    "centre": (120, 90, 1160, 630),
}


@dataclass(frozen=True)
class Palette:
    """Colours as #rrggbb. Without a picture, the background is a gradient from `dark` to `bright`."""

    text: str = "#ffffff"
    outline: str = "#101018"
    dark: str = "#14213d"
    bright: str = "#fca311"


PALETTES = (
    Palette(),
    Palette(text="#fff3b0", dark="#2b0a3d", bright="#e4572e"),
    Palette(text="#ffffff", dark="#003844", bright="#00a8a8"),
)


def draw_thumbnail(
    background: bytes | None, text: str, to: Path, palette: Palette = PALETTES[0], layout: Layout = "left"
) -> None:
    """Write a PNG of 1280x720 below 2 MB. Raise ValueError if the background is not a usable picture. A drawing of a
    bundled scene has words of its own, so its icon is drawn instead, beside the text."""
    words = " ".join(text.split())[:LONGEST_THUMBNAIL_TEXT]
    drawing = read_drawing(background) if background is not None else None
    if drawing is None:
        image = _draw_on_background(background, words, palette, layout)
    elif any(len(word) > _LONGEST_WORD for word in words.split()):
        image = _draw_on_background(None, words, palette, layout)
    else:
        number = LAYOUTS.index(layout) + drawing.variant
        image = draw_cover(drawing.find_icon(words), words, drawing.topic.theme, number, SIZE)
    with write_atomically(to, "thumbnail.png") as folder:
        _save_png(image, folder / "thumbnail.png")


def _draw_on_background(background: bytes | None, words: str, palette: Palette, layout: Layout) -> Image:
    from PIL import ImageDraw

    image = _darken(_fit_background(background) if background is not None else _gradient(palette), palette, layout)
    _draw_text(ImageDraw.Draw(image), words, palette, _BOXES[layout], layout)
    return image


def _fit_background(background: bytes) -> Image:
    """Crop the picture to the thumbnail's shape. Only the formats of image providers are opened."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(background), formats=("PNG", "JPEG", "WEBP")) as source:
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            if source.width * source.height > _MOST_PIXELS:
                raise ValueError(f"the background has {source.width}x{source.height} pixels, which is too large")
            return ImageOps.fit(source.convert("RGB"), SIZE)
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError("the background is not a readable PNG, JPEG or WebP picture") from error


def _gradient(palette: Palette) -> Image:
    from PIL import Image, ImageOps

    slope = Image.linear_gradient("L").rotate(35, expand=True).crop((73, 119, 283, 237)).resize(SIZE)
    return ImageOps.colorize(slope, palette.dark, palette.bright)


def _darken(image: Image, palette: Palette, layout: Layout) -> Image:
    """Darken the area behind the words for contrast with any picture."""
    from PIL import Image, ImageColor

    shade = Image.linear_gradient("L")  # black above, white below
    if layout == "left":
        shade = shade.rotate(-90)
    elif layout == "centre":
        shade = Image.new("L", (256, 256), 150)
    mask = shade.resize(SIZE).point(lambda value: value * 200 // 255)
    return Image.composite(Image.new("RGB", SIZE, ImageColor.getrgb(palette.dark)), image, mask)


def _draw_text(draw: ImageDraw, text: str, palette: Palette, box: Box, layout: Layout) -> None:
    font, rows = _fit_text(text, box)
    high = round(font.size * _LEADING)
    left, top, right, bottom = box
    y = bottom - high * len(rows) if layout == "bottom" else (top + bottom - high * len(rows)) // 2
    for row in rows:
        x = left if layout == "left" else (left + right - _width(font, row)) // 2
        draw.text((x, y), row, palette.text, font, stroke_width=_stroke(font), stroke_fill=palette.outline, anchor="la")
        y += high


def _fit_text(text: str, box: Box) -> tuple[FreeTypeFont, list[str]]:
    """Return the largest font with which all text fits the box; if even the smallest is too large, cut the text."""
    wide, high = box[2] - box[0], box[3] - box[1]
    for size in _SIZES:
        font = fonts.load_font(size, "Black")
        rows = _rows(font, text, wide)
        if len(rows) * size * _LEADING <= high and all(_width(font, row) <= wide for row in rows):
            return font, rows
    return _truncate_text(text, wide, high)


def _truncate_text(text: str, wide: int, high: int) -> tuple[FreeTypeFont, list[str]]:
    font = fonts.load_font(_SIZES[-1], "Black")
    parts = [part for word in text.split() for part in _break_word(font, word, wide)]
    rows = _rows(font, " ".join(parts), wide)
    max_rows = int(high // (_SIZES[-1] * _LEADING))
    return font, rows if len(rows) <= max_rows else [*rows[: max_rows - 1], "…"]


def _break_word(font: FreeTypeFont, word: str, wide: int) -> list[str]:
    """Split a word that is wider than the box."""
    parts = [""]
    for letter in word:
        if _width(font, parts[-1] + letter) > wide:
            parts.append("")
        parts[-1] += letter
    return parts


def _rows(font: FreeTypeFont, text: str, wide: int) -> list[str]:
    rows: list[str] = []
    for word in text.split():
        if rows and _width(font, f"{rows[-1]} {word}") <= wide:
            rows[-1] += f" {word}"
        else:
            rows.append(word)
    return rows


def _width(font: FreeTypeFont, text: str) -> int:
    return round(font.getlength(text)) + 2 * _stroke(font)


def _stroke(font: FreeTypeFont) -> int:
    return max(2, round(font.size / 16))


def _save_png(image: Image, to: Path) -> None:
    """Save with fewer colours if a busy picture would be too large."""
    image.save(to, "PNG")
    for colours in (256, 128, 64, 32, 16):
        if to.stat().st_size < MAX_BYTES:
            return
        image.quantize(colours).save(to, "PNG")
