"""A page, as our own are made and an application's can be: a path, and what shows it."""

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
    """`show` answers GET, `act` a form's POST that was checked before. `nav` is its name in the navigation, in English
    and in Portuguese. Who has not logged in sees it only if it `is_open`."""

    path: str
    show: PageHandler | None = None
    submit: PageHandler | None = None
    nav: tuple[str, str] | None = None
    is_public: bool = False
