"""Route requests to pages, find their viewers and render errors as pages."""

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
from retoma.server.auth import mark_authenticated
from retoma.server.dev_auth import strip_token
from retoma.server.pages import (
    capacity,
    deliveries,
    edit,
    login,
    overview,
    rerun,
    review,
    reviews,
    run,
    runs,
    static,
    style_guide,
)
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import AUTHENTICATED_FORM_LIMITS, HEADERS, PUBLIC_FORM_LIMITS, PageContext
from retoma.server.pages.page_site import PageSite
from retoma.server.problems import Problem, find_routes
from retoma.server.request_limits import problem_from_exception
from retoma.tracebacks import release_frames
from retoma.translations import N_

PAGES = (
    *overview.PAGES,
    *runs.PAGES,
    *run.PAGES,
    *edit.PAGES,
    *rerun.PAGES,
    *reviews.PAGES,
    *review.PAGES,
    *capacity.PAGES,
    *deliveries.PAGES,
    *login.PAGES,
    *style_guide.PAGES,
    *static.PAGES,
)

_ERROR_TITLES = {
    404: N_("Not found"),
    403: N_("Request rejected"),
    409: N_("This has already changed"),
    429: N_("Too many requests"),
    503: N_("The database is unreachable"),
    500: N_("Something went wrong"),
}
_OTHER_ERROR = N_("This did not work")


class PagesMiddleware:
    """Serve pages in front of the API, which gets all other requests. A route of the application wins over a page of
    Retoma. An unknown address that a browser asks for gets an error page."""

    def __init__(self, app: ASGIApp, page_site: PageSite) -> None:
        self._app = app
        self._page_site = page_site
        self._routes = [(Route(page.path, _unused_endpoint), page) for page in (*page_site.application_pages, *PAGES)]
        self._application_patterns = list(_compile_patterns(() if page_site.app is None else page_site.app.routes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = self._find_page(scope) if scope["type"] == "http" else None
        if page is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        answer = await self._respond(page, request)
        if self._page_site.sessions.is_secure(request):
            answer.headers["Strict-Transport-Security"] = "max-age=31536000"
        await answer(scope, receive, send)

    def _find_page(self, scope: Scope) -> Page | None:
        for route, page in self._routes:
            match, found = route.matches({**scope, "method": "GET"})
            if match is Match.FULL and not self._belongs_to_application(scope["path"]):
                scope["path_params"] = found["path_params"]
                return page
        return MISSING_PAGE if _is_missing_page(Request(scope)) else None

    def _belongs_to_application(self, path: str) -> bool:
        return any(pattern.match(path) for pattern in self._application_patterns)

    async def _respond(self, page: Page, request: Request) -> Response:
        development = self._page_site.auth.dev_auth
        if development is not None and development.is_login_link(request):
            opened = RedirectResponse(strip_token(request), 303, HEADERS)
            development.set_cookie(request, opened)
            return opened
        token = await self._find_token(request)
        visit = PageContext(self._page_site, request, token)
        try:
            if token is None and not page.is_public:
                return _redirect_to_login(request)
            return await _dispatch(page, visit)
        except Exception as error:  # noqa: BLE001  (what nobody foresaw is logged by its id there)
            answer = _render_error(visit, problem_from_exception(request.scope, error))
            release_frames(error)
            return answer

    async def _find_token(self, request: Request) -> str | None:
        if self._page_site.auth.is_developer(request):
            return self._page_site.sessions.dev_token
        token = await self._page_site.sessions.find_token(request)
        if token is not None:
            mark_authenticated(request)
        return token


async def _dispatch(page: Page, context: PageContext) -> Response:
    method = context.request.method
    if not page.is_public:
        context.open_review_count = await context.site.count_open_reviews()
    if method == "POST" and page.submit is not None:
        await context.read_form(PUBLIC_FORM_LIMITS if page.is_public else AUTHENTICATED_FORM_LIMITS)
        if not page.is_public:
            context.check_form()
        return await page.submit(context)
    if method in ("GET", "HEAD") and page.show is not None:
        return await page.show(context)
    raise Problem(405, "METHOD_NOT_ALLOWED", "this page does not take this method")


def _is_missing_page(request: Request) -> bool:
    if request.method != "GET" or request.scope["path"].startswith("/api/"):
        return False
    return "text/html" in request.headers.get("accept", "") and not find_routes(request)


async def _raise_missing_page(context: PageContext) -> Response:
    context.path = "/"  # anybody can make up an address, and as a link it may lead to another host
    raise NotFound(context.gettext("There is no page at this address."))


MISSING_PAGE = Page("/", _raise_missing_page, is_public=True)


def _redirect_to_login(request: Request) -> Response:
    to = strip_token(request)
    return RedirectResponse(f"/login?{urlencode({'to': to})}" if to != "/" else "/login", 303, HEADERS)


def _render_error(context: PageContext, problem: Problem) -> Response:
    title = context.translate(_ERROR_TITLES.get(problem.status_code, _OTHER_ERROR))
    answer = context.render("error.html", problem.status_code, problem=problem, title=title)
    answer.headers.update(problem.headers or {})
    return answer


def _compile_patterns(routers: tuple[object, ...]) -> Iterator[Pattern[str]]:
    for router in routers:
        for route in iter_route_contexts(getattr(router, "routes", ())):
            yield compile_path(route.path or "")[0]


async def _unused_endpoint(request: Request) -> Response:
    raise AssertionError("only its path is used")
