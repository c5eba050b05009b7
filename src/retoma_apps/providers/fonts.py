"""The font of everything that is drawn here: Noto Sans, which has the accents, from the extra `media`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from retoma import GiveUp

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

NAME = "Noto Sans"


def font_folder() -> Path:
    try:
        import fontpkg_noto_sans  # type: ignore[import-untyped]  # an extra: only who renders here needs it
    except ImportError as error:
        raise GiveUp(
            "there is no font here: install the extra `media`, as in pip install -e '.[media]'", "NOT_INSTALLED"
        ) from error
    return Path(fontpkg_noto_sans.__file__).parent / "files"


def link_fonts(at: Path) -> None:
    """Make the fonts seen at this path: ffmpeg's filters take only names that need no escaping."""
    if not at.is_symlink():
        at.symlink_to(font_folder(), target_is_directory=True)


def load_font(size: int, weight: str = "Bold") -> FreeTypeFont:
    """For Pillow. `weight` is an instance of the font, such as Regular, SemiBold or Black."""
    from PIL import ImageFont

    font = ImageFont.truetype(font_folder() / "NotoSans[wdth,wght].ttf", size)
    font.set_variation_by_name(weight)
    return font
