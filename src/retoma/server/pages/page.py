"""A page of Retoma or of an application: a path and its handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from retoma.server.pages.page_context import PageContext

PageHandler = Callable[["PageContext"], Awaitable[Response]]


@dataclass(frozen=True)
class Page:
    """`show` answers GET; `submit` answers a form's POST, after the form was checked. `nav` is the page's name in the
    navigation, translated by the application's catalogue. Only a page that `is_public` needs no login. `max_upload` is
    the size in bytes of the files that its form may have, if any; its path then has no parameters. An address of an
    application that lacks the slash at the end of a page's path is redirected to it."""

    path: str
    show: PageHandler | None = None
    submit: PageHandler | None = None
    nav: str | None = None
    is_public: bool = False
    max_upload: int = 0
