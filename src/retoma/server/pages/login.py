"""Login with the one password, and logout."""

from __future__ import annotations

from starlette.responses import Response

from retoma.server.door import address_of
from retoma.server.pages.page import Page
from retoma.server.pages.visit import Visit


async def show(visit: Visit) -> Response:
    return visit.go("/") if visit.token is not None else _form(visit, visit.asked.get("to", ""))


async def log_in(visit: Visit) -> Response:
    sessions = visit.site.sessions
    to = visit.fields.get("to", "")
    token = await sessions.open(visit.fields.get("password", ""), address_of(visit.request))
    if token is None:
        return _form(visit, to, status=401, wrong=True)
    if visit.token is not None:
        await sessions.end(visit.token)
    answer = visit.go(_ours(to))
    sessions.keep(visit.request, answer, token)
    return answer


async def log_out(visit: Visit) -> Response:
    if visit.token is not None:
        await visit.site.sessions.end(visit.token)
    answer = visit.go("/login", "logged_out")
    visit.site.sessions.forget(visit.request, answer)
    return answer


def _form(visit: Visit, to: str, status: int = 200, wrong: bool = False) -> Response:
    refusal = visit.site.door.refusal(visit.request)
    possible = visit.site.sessions.is_possible
    if refusal is not None and not possible:
        status = 401
    return visit.show("login.html", status, to=_ours(to), wrong=wrong, possible=possible, refusal=refusal)


def _ours(to: str) -> str:
    """Only a path of this server: `//elsewhere` and `/\\elsewhere` are other hosts to a browser."""
    plain = to.startswith("/") and to[1:2] not in ("/", "\\") and to.isprintable()
    return to if plain else "/"


PAGES = (Page("/login", show, log_in, is_open=True), Page("/logout", act=log_out))
