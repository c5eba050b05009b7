"""The font for all rendered text: Noto Sans, which has accented letters, from the extra `media`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

NAME = "Noto Sans"


def font_folder() -> Path:
    import fontpkg_noto_sans  # type: ignore[import-untyped]  # only what draws pictures needs it

    return Path(fontpkg_noto_sans.__file__).parent / "files"


def link_fonts(at: Path) -> None:
    """Link the fonts at this path: ffmpeg's filters only accept names that need no escaping."""
    if not at.is_symlink():
        at.symlink_to(font_folder(), target_is_directory=True)


def load_font(size: int, weight: str = "Bold") -> FreeTypeFont:
    """Load the font for Pillow. `weight` is a named instance of it, such as Regular, SemiBold or Black."""
    from PIL import ImageFont

    font = ImageFont.truetype(font_folder() / "NotoSans[wdth,wght].ttf", size)
    font.set_variation_by_name(weight)
    return font
