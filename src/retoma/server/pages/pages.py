"""Which request is for a page, and what surrounds each: who visits, and an answer that people can read."""

from __future__ import annotations

from collections.abc import Iterator
from re import Pattern
from urllib.parse import urlencode

from fastapi.routing import iter_route_contexts
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from retoma.errors import NotFound
from retoma.server.development import without_token
from retoma.server.door import mark_known
from retoma.server.edge import problem_for
from retoma.server.pages import (
    anew,
    capacity,
    changes,
    deliveries,
    kit,
    login,
    overview,
    review,
    reviews,
    run,
    runs,
    static,
)
from retoma.server.pages.page import Page
from retoma.server.pages.site import Site
from retoma.server.pages.visit import HEADERS, OF_STRANGERS, OF_VISITORS, Visit
from retoma.server.problems import Problem, routes_at
from retoma.tracebacks import release_frames

PAGES = (
    *overview.PAGES,
    *runs.PAGES,
    *run.PAGES,
    *changes.PAGES,
    *anew.PAGES,
    *reviews.PAGES,
    *review.PAGES,
    *capacity.PAGES,
    *deliveries.PAGES,
    *login.PAGES,
    *kit.PAGES,
    *static.PAGES,
)


class Pages:
    """In front of the API. What is not a page goes on to it; an application's own route wins over a page of ours. A
    person whose address leads nowhere is told so by a page."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site
        self._routes = [(Route(page.path, _unused), page) for page in (*site.own_pages, *PAGES)]
        self._patterns = list(_patterns(() if site.app is None else site.app.routes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = self._page(scope) if scope["type"] == "http" else None
        if page is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        answer = await self._answer(page, request)
        if self._site.sessions.is_secure(request):
            answer.headers["Strict-Transport-Security"] = "max-age=31536000"
        await answer(scope, receive, send)

    def _page(self, scope: Scope) -> Page | None:
        for route, page in self._routes:
            match, found = route.matches({**scope, "method": "GET"})
            if match is Match.FULL and not self._belongs_to_application(scope["path"]):
                scope["path_params"] = found["path_params"]
                return page
        return NOWHERE if _leads_a_person_nowhere(Request(scope)) else None

    def _belongs_to_application(self, path: str) -> bool:
        return any(pattern.match(path) for pattern in self._patterns)

    async def _answer(self, page: Page, request: Request) -> Response:
        development = self._site.door.development
        if development is not None and development.opens(request):
            opened = RedirectResponse(without_token(request), 303, HEADERS)
            development.remember(request, opened)
            return opened
        token = await self._token(request)
        visit = Visit(self._site, request, token)
        try:
            if token is None and not page.is_open:
                return _to_login(request)
            return await _shown(page, visit)
        except Exception as error:  # noqa: BLE001  (what nobody foresaw is logged by its id there)
            answer = _told(visit, problem_for(request.scope, error))
            release_frames(error)
            return answer

    async def _token(self, request: Request) -> str | None:
        if self._site.door.needs_nothing(request):
            return self._site.sessions.nobody
        token = await self._site.sessions.of(request)
        if token is not None:
            mark_known(request)
        return token


async def _shown(page: Page, visit: Visit) -> Response:
    method = visit.request.method
    if not page.is_open:
        visit.asked_of_people = await visit.site.open_reviews()
    if method == "POST" and page.act is not None:
        await visit.read_form(OF_STRANGERS if page.is_open else OF_VISITORS)
        if not page.is_open:
            visit.check_form()
        return await page.act(visit)
    if method in ("GET", "HEAD") and page.show is not None:
        return await page.show(visit)
    raise Problem(405, "METHOD_NOT_ALLOWED", "this page does not take this method")


def _leads_a_person_nowhere(request: Request) -> bool:
    if request.method != "GET" or request.scope["path"].startswith("/api/"):
        return False
    return "text/html" in request.headers.get("accept", "") and not routes_at(request)


async def _nowhere(visit: Visit) -> Response:
    visit.path = "/"  # anybody can make up an address, and as a link it may lead to another host
    raise NotFound(visit.say("no such page"))


NOWHERE = Page("/", _nowhere, is_open=True)


def _to_login(request: Request) -> Response:
    to = without_token(request)
    return RedirectResponse(f"/login?{urlencode({'to': to})}" if to != "/" else "/login", 303, HEADERS)


def _told(visit: Visit, problem: Problem) -> Response:
    answer = visit.show("error.html", problem.status_code, problem=problem)
    answer.headers.update(problem.headers or {})
    return answer


def _patterns(routers: tuple[object, ...]) -> Iterator[Pattern[str]]:
    for router in routers:
        for route in iter_route_contexts(getattr(router, "routes", ())):
            yield compile_path(route.path or "")[0]


async def _unused(request: Request) -> Response:
    raise AssertionError("only its path is used")
