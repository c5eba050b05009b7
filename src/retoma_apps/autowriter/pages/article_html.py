"""Show the body of a post on our own pages: only known elements remain, and no attribute except a web address."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html.parser import HTMLParser

from markupsafe import Markup, escape

from retoma import File
from retoma_apps.autowriter.models import Image
from retoma_apps.autowriter.pages.common import get_safe_link

_ELEMENTS = ("h2", "h3", "h4", "p", "ul", "li", "a")
_IMAGE = re.compile(r"\s*autowriter:image (\w+)\s*")
_LINK = Markup('<a class="link" href="{}" rel="noreferrer noopener" target="_blank">')
_FIGURE = Markup('<figure><img src="{}" alt="{}" loading="lazy"></figure>')


def render_article(html: str, images: Sequence[Image], file_url: Callable[[File], str]) -> Markup:
    """Return markup that can do nothing. The place of an image gets the image."""
    parser = _ArticleParser({image.key: _FIGURE.format(file_url(image.file), image.alt) for image in images})
    parser.feed(html)
    parser.close()
    return parser.get_markup()


class _ArticleParser(HTMLParser):
    def __init__(self, figures: dict[str, Markup]) -> None:
        super().__init__(convert_charrefs=True)
        self._figures = figures
        self._written: list[Markup] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _ELEMENTS:
            return
        link = get_safe_link(dict(attrs).get("href") or "") if tag == "a" else None
        if tag == "a" and link is None:
            return
        self._open.append(tag)
        self._written.append(_LINK.format(link) if link else Markup("<{}>").format(tag))

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._close_last() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self._written.append(escape(data))

    def handle_comment(self, data: str) -> None:
        if found := _IMAGE.fullmatch(data):
            self._written.append(self._figures.get(found[1], Markup()))

    def get_markup(self) -> Markup:
        while self._open:
            self._close_last()
        return Markup().join(self._written)

    def _close_last(self) -> str:
        tag = self._open.pop()
        self._written.append(Markup("</{}>").format(tag))
        return tag
