"""Show the body of a post on our own pages: only known elements remain, and no attribute except a web address.

The time is proportional to the text, whatever it contains: `html.parser` needs minutes for 100 KB of unclosed tags.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from retoma import File
from retoma_apps.autowriter.models import Image
from retoma_apps.autowriter.pages.common import get_safe_link

MAX_DEPTH = 32
_ELEMENTS = ("h2", "h3", "h4", "p", "ul", "li", "a")
_START = {tag: Markup(f"<{tag}>") for tag in _ELEMENTS}  # noqa: S704, our own names
_END = {tag: Markup(f"</{tag}>") for tag in _ELEMENTS}  # noqa: S704, our own names
# No search goes beyond the next bracket or back: no text makes it slow.
_MARKUP = re.compile(r"<(?=[a-zA-Z/!?])([^<>]*+)>")
_TAG = re.compile(r"(/?)([a-zA-Z][a-zA-Z0-9]*+)")
_ATTRIBUTE = re.compile(r"""([^\s=/"']++)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s"']++))?""")
_IMAGE = re.compile(r"!--\s*autowriter:image (\w+)\s*--")
_LINK = Markup('<a class="link" href="{}" rel="noreferrer noopener" target="_blank">')
_FIGURE = Markup('<figure><img src="{}" alt="{}" loading="lazy"></figure>')


def render_article(text: str, images: Sequence[Image], file_url: Callable[[File], str]) -> Markup:
    """Return markup that can do nothing. The place of an image gets the image."""
    article = _ArticleWriter({image.key: _FIGURE.format(file_url(image.file), image.alt) for image in images})
    position = 0
    for found in _MARKUP.finditer(text):
        article.add_text(text[position : found.start()])
        article.add_markup(found[1])
        position = found.end()
    article.add_text(text[position:])
    return article.finish()


class _ArticleWriter:
    def __init__(self, figures: dict[str, Markup]) -> None:
        self._figures = figures
        self._written: list[Markup] = []
        self._open: list[str] = []

    def add_text(self, text: str) -> None:
        self._written.append(escape(_unescape(text)))

    def add_markup(self, inside: str) -> None:
        """Add a tag or a comment, given without its brackets."""
        if image := _IMAGE.fullmatch(inside):
            self._written.append(self._figures.get(image[1], Markup()))
        elif found := _TAG.match(inside):
            tag = found[2].lower()
            if found[1]:
                self._close(tag)
            elif tag in _ELEMENTS and len(self._open) < MAX_DEPTH:
                self._start(tag, inside[found.end() :])

    def finish(self) -> Markup:
        while self._open:
            self._close_last()
        return Markup().join(self._written)

    def _start(self, tag: str, attributes: str) -> None:
        link = _find_link(attributes) if tag == "a" else None
        if tag == "a" and link is None:
            return
        self._open.append(tag)
        self._written.append(_LINK.format(link) if link else _START[tag])

    def _close(self, tag: str) -> None:
        if tag in self._open:
            while self._close_last() != tag:
                pass

    def _close_last(self) -> str:
        tag = self._open.pop()
        self._written.append(_END[tag])
        return tag


def _find_link(attributes: str) -> str | None:
    values = (found[2] or "" for found in _ATTRIBUTE.finditer(attributes) if found[1].lower() == "href")
    return get_safe_link(_unescape(next(values, "").strip("\"'")))


def _unescape(text: str) -> str:
    """Return the text with character references replaced, or unchanged if one is a number of thousands of digits."""
    try:
        return html.unescape(text)
    except ValueError:
        return text
