"""The end of every login: open the session, and go to the page that was asked for."""

from __future__ import annotations

from starlette.responses import Response

from retoma.records import Person
from retoma.server.pages.page_context import PageContext


async def open_session(context: PageContext, person: Person, to: str, method: str) -> Response:
    """Open a session for a person who has proved who it is, and redirect to the page that was asked for.

    Every way to log in ends here.
    """
    sessions = context.services.sessions
    if context.token is not None and context.person is not None:
        await sessions.log_out(context.request, context.person, context.token)
    answer = context.redirect(safe_redirect_path(to))
    sessions.set_cookie(context.request, answer, await sessions.open_session(person, context.request, method))
    return answer


def safe_redirect_path(to: str) -> str:
    """Return the path if it is on this server: to a browser, `//elsewhere` and `/\\elsewhere` are other hosts."""
    plain = to.startswith("/") and to[1:2] not in ("/", "\\") and to.isprintable()
    return to if plain else "/"
