"""Build the server: the API under /api/v1, the application's own routes at the root."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import RouteContext, iter_route_contexts
from starlette.requests import Request
from starlette.routing import BaseRoute

from retoma.app import App
from retoma.client import Client
from retoma.errors import DefinitionError
from retoma.privileges import get_user_name
from retoma.server import metrics, problems
from retoma.server.auth import Auth
from retoma.server.dev_auth import DevAuth
from retoma.server.pages.page_context import get_form_limits
from retoma.server.pages.page_routes import add_page_routes
from retoma.server.pages.page_services import PageServices
from retoma.server.principal import get_route_access
from retoma.server.public_url_check import PublicUrlCheck
from retoma.server.request_limits import RequestLimits
from retoma.server.request_rate import CountRequests, RequestRate
from retoma.server.request_traces import TraceRequests
from retoma.server.routes import (
    actions,
    audit,
    budgets,
    bulk_actions,
    callbacks,
    charges,
    connections,
    deliveries,
    files,
    health,
    items,
    live,
    openapi,
    people,
    pipelines,
    pools,
    retention,
    reviews,
    runs,
    schedules,
    webhook_endpoints,
    webhooks,
    workers,
)
from retoma.server.sessions import Sessions
from retoma.server.single_sign_on import open_single_sign_on
from retoma.server.streams import Streams
from retoma.settings import Settings
from retoma.tracing import TRACES

API_PREFIX = "/api/v1"
_API_ROUTERS = (
    runs.router,
    actions.router,
    schedules.router,
    bulk_actions.router,
    reviews.router,
    files.router,
    items.router,
    live.router,
    budgets.router,
    charges.router,
    connections.router,
    pipelines.router,
    pools.router,
    workers.router,
    deliveries.router,
    webhook_endpoints.router,
    webhooks.router,
    people.router,
    audit.router,
    retention.router,
    openapi.router,
)


def make_server(app: App | None, client: Client, settings: Settings, *, dev_token: str | None = None) -> FastAPI:
    """Return the ASGI application. Local requests with `dev_token` need no API key and have every scope."""
    server = FastAPI(
        title="Retoma" if app is None else app.name,
        version=version("retoma"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Its own spans contain paths and queries, which may contain tokens. It records them once an application, or
        # another library, configures OpenTelemetry.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    sessions = Sessions(client, settings)
    dev_auth = None if dev_token is None else DevAuth(dev_token, settings.dev_name or get_user_name())
    auth = Auth(client, settings.rate_limit_per_minute, sessions, dev_auth=dev_auth)
    server.state.auth = auth
    server.state.app = app
    server.state.client = client
    server.state.live = Streams(client.database, settings.streams_per_key, auth.find_invalid)
    server.state.settings = settings
    server.state.request_rate = RequestRate()
    problems.add_exception_handlers(server)
    server.router.routes += _build_routes()
    applications = () if app is None else app.applications
    for application in applications:
        _include_application_routes(server, application)
    _check_distinct_addresses(applications)
    _check_access_declared(server)
    add_page_routes(server.router, PageServices(app, client, auth, sessions, open_single_sign_on(client, settings)))
    if settings.public_url is None and dev_token is None:
        server.add_middleware(PublicUrlCheck)
    large_bodies = {path: limit for application in applications for path, limit in application.large_bodies.items()}
    uploads = [page for application in applications for page in application.pages if page.max_upload]
    large_bodies |= {page.path: get_form_limits(page).size for page in uploads}
    server.add_middleware(RequestLimits, large_bodies=large_bodies, auth=auth)
    server.add_middleware(CountRequests, rate=server.state.request_rate)
    if TRACES.is_on:
        server.add_middleware(TraceRequests, routes=list_routes(server))
    return server


@cache
def _build_routes() -> list[BaseRoute]:
    """Build the routes once per process: this takes longer than the rest of `make_server`."""
    ours = APIRouter()
    ours.include_router(health.router)
    ours.include_router(metrics.router)
    for router in _API_ROUTERS:
        ours.include_router(
            router, prefix=API_PREFIX, responses=problems.document_problems(400, 401, 403, 413, 422, 429, 503)
        )
    ours.include_router(
        callbacks.router, prefix=API_PREFIX, responses=problems.document_problems(400, 413, 422, 429, 503)
    )
    return ours.routes


def _include_application_routes(server: FastAPI, application: App) -> None:
    async def select_application(request: Request) -> None:
        request.state.application = application

    for router in application.routes:
        if not isinstance(router, APIRouter):
            raise DefinitionError(f"App(routes=...) takes FastAPI APIRouter objects, not {router!r:.80}")
        server.include_router(router, dependencies=[Depends(select_application)])


def _check_distinct_addresses(applications: Iterable[App]) -> None:
    owners: dict[str, App] = {}
    for application in applications:
        contexts = [context for router in application.routes for context in iter_route_contexts(router.routes)]
        routes = [f"route {method} {context.path}" for context in contexts for method in context.methods or ()]
        for address in (*routes, *(f"page {page.path}" for page in application.pages)):
            other = owners.setdefault(address, application)
            if other is not application:
                raise DefinitionError(
                    f"the applications {other.name!r} and {application.name!r} both have a {address}; change one of "
                    "them, or serve the applications separately"
                )


def list_routes(server: FastAPI) -> list[RouteContext]:
    """Return every served route, with the settings inherited from its routers."""
    return list(iter_route_contexts(server.routes))


def _check_access_declared(server: FastAPI) -> None:
    """Raise DefinitionError if a route does not declare its access: it would be open to everyone."""
    for route in list_routes(server):
        if get_route_access(route) is None:
            raise DefinitionError(
                f"the route {', '.join(sorted(route.methods or ()))} {route.path} does not declare who may call it: "
                "add `by: Annotated[Principal, require_scope(...)]`, or `dependencies=[public]` if anyone may"
            )
