"""Name the drawing of a bundled scene in a file or a link, so that it can be found and drawn again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from retoma_apps.providers.pictures import Scene
from retoma_apps.providers.topics.library import find_scene
from retoma_apps.providers.topics.models import Topic, TopicScene

if TYPE_CHECKING:
    from PIL.Image import Image

_LINK = re.compile(r"offline:(\d{1,9})/([!-~]*)")


@dataclass(frozen=True)
class Drawing:
    """A scene in one of the variants of its colours."""

    topic: Topic
    scene: TopicScene
    variant: int = 0

    @property
    def link(self) -> str:
        return format_link(self.scene.visual, self.variant)

    def find_icon(self, words: str) -> str:
        """Return the icon for a thumbnail with these words: the topic's, else that of this scene."""
        chosen = (each.icon for each in self.topic.thumbnails if each.text == words)
        return next(chosen, self.scene.picture.main_icon)

    def animate(self, part: str = "") -> Scene:
        """Return the scene to be animated, while `part` of its text is spoken, or all of it. Text that is not part of
        the scene's own replaces it."""
        whole = self.scene.text
        is_own = part in whole
        return Scene(
            self.scene.picture,
            whole if is_own else part,
            self.topic.theme,
            self.variant,
            part=part if is_own else "",
            is_first=self.scene is self.topic.scenes[0],
            is_last=self.scene is self.topic.scenes[-1] and (not is_own or whole.endswith(part)),
        )


def format_link(query: str, variant: int) -> str:
    return f"offline:{variant}/{quote(query, safe='', errors='replace')}"


def parse_link(link: str) -> tuple[str, int] | None:
    """Return the query and the variant of a link, or None if it is another link."""
    found = _LINK.fullmatch(link)
    return (unquote(found[2]), int(found[1])) if found else None


def find_drawing(link: str) -> Drawing | None:
    """Return the drawing that a link names, or None."""
    query, variant = parse_link(link) or ("", 0)
    known = find_scene(query)
    return Drawing(*known, variant) if known else None


def write_jpeg(picture: Image, drawing: Drawing | None = None) -> bytes:
    """Return the picture as JPEG, with the link of its drawing in a comment."""
    file = BytesIO()
    picture.save(file, "JPEG", quality=90, comment=drawing.link if drawing else None)
    return file.getvalue()


def read_drawing(file: bytes) -> Drawing | None:
    """Return the drawing that a JPEG shows, or None if it is another picture."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(BytesIO(file), formats=("JPEG",)) as picture:
            comment = picture.info.get("comment", b"")
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError):
        return None
    return find_drawing(comment.decode("ascii", "replace"))
