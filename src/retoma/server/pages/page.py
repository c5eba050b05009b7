"""A page of Retoma or of an application: a path and its handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response

from retoma.errors import DefinitionError
from retoma.records import Scope

if TYPE_CHECKING:
    from retoma.server.pages.page_context import PageContext

UNDECLARED = ""
PageHandler = Callable[["PageContext"], Awaitable[Response]]


@dataclass(frozen=True)
class Page:
    """`show` answers GET; `submit` answers a form's POST, after the form was checked. `scope` is what the viewer needs
    to see the page, and `submit_scope` to send its form, which must be declared; None: any person who is logged in. The
    client of the page's context is limited to the tenants in which the viewer has that scope. `nav` is the page's name
    in the navigation, translated by the application's catalogue. Only a page that `is_public` needs no login.
    `max_upload` is the size in bytes of the files that its form may have, if any; its path then has no parameters. An
    address of an application that lacks the slash at the end of a page's path is redirected to it."""

    path: str
    show: PageHandler | None = None
    submit: PageHandler | None = None
    nav: str | None = None
    is_public: bool = False
    max_upload: int = 0
    scope: str | None = Scope.RUNS_READ
    submit_scope: str | None = UNDECLARED

    def __post_init__(self) -> None:
        if self.submit is not None and not self.is_public and self.submit_scope == UNDECLARED:
            raise DefinitionError(
                f"the page {self.path} does not declare who may send its form: add `submit_scope`, for example "
                '"runs:write", or None for everybody who is logged in'
            )
        for scope in (self.scope, self.submit_scope):
            if scope and scope not in list(Scope):
                raise DefinitionError(f"the page {self.path} requires {scope!r:.40}, which is not a scope")

    def get_scope(self, method: str) -> Scope | None:
        """Return the scope that a request with this method requires; None: any person who is logged in."""
        wanted = self.submit_scope if method == "POST" else self.scope
        return Scope(wanted) if wanted else None
