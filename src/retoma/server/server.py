"""The server, put together: our routes under /api/v1, an application's own at the root."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import RouteContext, iter_route_contexts
from starlette.routing import BaseRoute

from retoma.app import App
from retoma.client import Client
from retoma.errors import DefinitionError
from retoma.server import metrics, problems
from retoma.server.callers import need_of
from retoma.server.development import Development
from retoma.server.door import Door
from retoma.server.edge import Edge
from retoma.server.foreign_host import ForeignHost
from retoma.server.pages.pages import Pages
from retoma.server.pages.site import Site
from retoma.server.routes import (
    acts,
    callbacks,
    charges,
    deliveries,
    documents,
    endpoints,
    files,
    health,
    items,
    live,
    pipelines,
    pools,
    reviews,
    runs,
    webhooks,
    workers,
)
from retoma.server.sessions import Sessions
from retoma.server.streams import Streams
from retoma.settings import Settings

ROOT = "/api/v1"
_ROUTERS = (
    runs.router,
    acts.router,
    reviews.router,
    files.router,
    items.router,
    live.router,
    charges.router,
    pipelines.router,
    pools.router,
    workers.router,
    deliveries.router,
    endpoints.router,
    webhooks.router,
    documents.router,
)


def make_server(app: App | None, client: Client, settings: Settings, *, development: str | None = None) -> FastAPI:
    """An ASGI application. Callers on this machine with the token `development` need no key and may do everything."""
    server = FastAPI(
        title="Retoma" if app is None else app.name,
        version=version("retoma"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    sessions = Sessions(client, settings)
    developer = None if development is None else Development(development)
    door = Door(client, settings.rate_limit_per_minute, sessions, development=developer)
    server.state.door = door
    server.state.app = app
    server.state.client = client
    server.state.live = Streams(client.database, settings.streams_per_key, door.find_ended)
    server.state.settings = settings
    problems.add_handlers(server)
    server.router.routes += _ours()
    _add_own(server, () if app is None else app.routes)
    _check_needs(server)
    server.add_middleware(Pages, site=Site(app, client, door, sessions))
    if settings.public_url is None and development is None:
        server.add_middleware(ForeignHost)
    server.add_middleware(Edge, large={} if app is None else app.large_bodies, door=door)
    return server


@cache
def _ours() -> list[BaseRoute]:
    """Put together once for all servers of a process, as that takes longer than everything else here."""
    ours = APIRouter()
    ours.include_router(health.router)
    ours.include_router(metrics.router)
    for router in _ROUTERS:
        ours.include_router(router, prefix=ROOT, responses=problems.documented(400, 401, 403, 413, 422, 429, 503))
    ours.include_router(callbacks.router, prefix=ROOT, responses=problems.documented(400, 413, 422, 429, 503))
    return ours.routes


def _add_own(server: FastAPI, routers: Iterable[Any]) -> None:
    for router in routers:
        if not isinstance(router, APIRouter):
            raise DefinitionError(f"App(routes=...) takes FastAPI's APIRouter; given: {router!r:.80}")
        server.include_router(router)


def routes_of(server: FastAPI) -> list[RouteContext]:
    """Every route that is served, with all that it got from the routers around it."""
    return list(iter_route_contexts(server.routes))


def _check_needs(server: FastAPI) -> None:
    """A route that forgot to ask who calls must not be served."""
    for route in routes_of(server):
        if need_of(route) is None:
            raise DefinitionError(
                f"the route {', '.join(sorted(route.methods or ()))} {route.path} does not say who may call it: "
                "give it `by: Annotated[Caller, caller(scope)]`, or `dependencies=[public]` if anyone may"
            )
