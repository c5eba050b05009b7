"""The benchmark of hostile requests runs, with one of each, and has one for every route that reads from a stranger."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.routing import compile_path

from bench import hostile_requests
from bench.server import Server
from bench.testbed import Rig
from retoma.client import Client
from retoma.server import make_server
from retoma.server.pages.registry import PAGES
from retoma.server.principal import get_route_access
from retoma.server.server import list_routes
from retoma.store.database import Database


async def test_the_time_that_unauthenticated_requests_occupy_the_loop_is_measured(database: Database) -> None:
    server = Server(database.url)
    try:
        found = await hostile_requests.measure(Rig(server, scale=0.01, timeout=60), repeats=1)
    finally:
        await server.close()
    assert found.keys() == hostile_requests.REQUESTS.keys()
    assert all(milliseconds > 0 for milliseconds in found.values())


def test_every_route_that_reads_from_a_stranger_is_in_the_benchmark() -> None:
    sent = [request.split(b" ", 2)[:2] for request in hostile_requests.REQUESTS.values() if request.count(b" ") > 1]
    missing = [
        f"{method} {path}"
        for method, path in list_open_routes()
        if not any(
            method == name.decode() and compile_path(path)[0].match(target.decode().partition("?")[0])
            for name, target in sent
        )
    ]
    assert missing == []


def list_open_routes() -> Iterator[tuple[str, str]]:
    """Every route that needs no key, that accepts a signed link, or that reads a body itself; and every public page."""
    app = hostile_requests.open_app()
    server = make_server(app, Client(app, Database("never asked", None)), hostile_requests.make_settings())
    large = {path for application in app.applications for path in application.large_bodies}
    for route in list_routes(server):
        access = get_route_access(route)
        if access is None:
            continue  # a page
        parameters = {each.name for part in route.dependant.dependencies for each in part.query_params}
        if not access.needs_key or "signature" in parameters or route.path in large:
            yield from ((method, str(route.path)) for method in sorted(route.methods or ()))
    for page in (*PAGES, *(page for application in app.applications for page in application.pages)):
        if page.is_public and page.show is not None:
            yield "GET", page.path
        if page.submit is not None and (page.is_public or page.max_upload):
            yield "POST", page.path
