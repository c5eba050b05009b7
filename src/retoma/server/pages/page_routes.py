"""Serve every page as a route: find its viewer, call its function, and render errors as pages."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from retoma.app import App
from retoma.errors import NotFound
from retoma.server.auth import mark_authenticated
from retoma.server.dev_auth import strip_token
from retoma.server.pages.compression import compress
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import HEADERS, PUBLIC_FORM_LIMITS, PageContext, get_form_limits
from retoma.server.pages.page_services import PageServices
from retoma.server.pages.registry import PAGES
from retoma.server.principal import Caller
from retoma.server.problems import Problem
from retoma.server.request_limits import problem_from_exception
from retoma.tracebacks import release_frames
from retoma.translations import N_

_ERROR_TITLES = {
    404: N_("Not found"),
    403: N_("Request rejected"),
    410: N_("No longer valid"),
    409: N_("This has already changed"),
    429: N_("Too many requests"),
    503: N_("The database is unreachable"),
    500: N_("Something went wrong"),
}
_ACCESS_DENIED = N_("You do not have access")
_OTHER_ERROR = N_("This did not work")


def add_page_routes(router: Router, services: PageServices) -> None:
    """Add the pages after all other routes, which win over them. A browser gets an unknown address as a page too."""
    own = services.application_pages
    without_slash = [(app, Page(page.path.rstrip("/"), _add_slash)) for app, page in own if page.path[1:].endswith("/")]
    pages = (*own, *without_slash, *((None, page) for page in PAGES))
    router.routes += [
        Route(page.path, _PageEndpoint(services, page, application), include_in_schema=False)
        for application, page in pages
    ]
    missing_page, not_found = _PageEndpoint(services, Page("/", _raise_missing_page, is_public=True)), router.default

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        await (missing_page if _asks_for_page(scope) else not_found)(scope, receive, send)

    router.default = respond


async def _add_slash(context: PageContext) -> Response:
    return context.redirect(f"{context.request.url.path}/")


def _asks_for_page(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] != "GET" or scope["path"].startswith("/api/"):
        return False
    return "text/html" in Request(scope).headers.get("accept", "")


async def _raise_missing_page(context: PageContext) -> Response:
    context.path = "/"  # anybody can make up an address, and as a link it may lead to another host
    raise NotFound(context.gettext("There is no page at this address."))


class _PageEndpoint:
    """An ASGI application, so its route takes every method: the error of a wrong one is a page too."""

    def __init__(self, services: PageServices, page: Page, application: App | None = None) -> None:
        self._services = services
        self._page = page
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._respond(request)
        if self._services.sessions.is_secure(request):
            response.headers["Strict-Transport-Security"] = "max-age=31536000"
        compress(request, response)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        development = self._services.auth.dev_auth
        if development is not None and development.is_login_link(request):
            opened = RedirectResponse(strip_token(request), 303, HEADERS)
            development.set_cookie(request, opened)
            return opened
        caller = await self._find_viewer(request)
        context = PageContext(self._services, request, caller, self._application)
        try:
            if caller is None and not self._page.is_public:
                return _redirect_to_login(request)
            return await _dispatch(self._page, context)
        except Exception as error:  # noqa: BLE001  (what nobody foresaw is logged by its id there)
            response = _render_error(context, problem_from_exception(request.scope, error))
            release_frames(error)
            return response

    async def _find_viewer(self, request: Request) -> Caller | None:
        caller = await self._services.auth.find_viewer(request)
        if caller is not None:
            mark_authenticated(request)
        return caller


async def _dispatch(page: Page, context: PageContext) -> Response:
    method = context.request.method
    if not page.is_public:
        context.limit_client(page.get_scope(method))
        context.open_review_count, context.stuck_count = await context.services.count_waiting(context)
    if method == "POST" and page.submit is not None:
        await context.read_form(PUBLIC_FORM_LIMITS if page.is_public else get_form_limits(page))
        if not page.is_public:
            context.check_form()
        return await page.submit(context)
    if method in ("GET", "HEAD") and page.show is not None:
        return await page.show(context)
    raise Problem(405, "METHOD_NOT_ALLOWED", "this page does not take this method")


def _redirect_to_login(request: Request) -> Response:
    to = strip_token(request)
    return RedirectResponse(f"/login?{urlencode({'to': to})}" if to != "/" else "/login", 303, HEADERS)


def _render_error(context: PageContext, problem: Problem) -> Response:
    is_denied = problem.code in ("ROLE_MISSING", "OTHER_TENANT")
    title = context.translate(_ACCESS_DENIED if is_denied else _ERROR_TITLES.get(problem.status_code, _OTHER_ERROR))
    response = context.render("error.html", problem.status_code, problem=problem, title=title)
    response.headers.update(problem.headers or {})
    return response
