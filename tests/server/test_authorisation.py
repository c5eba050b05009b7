"""Every route with every kind of caller, from the route table: routes without a rule fail here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from fastapi.routing import RouteContext

from retoma.client import Client
from retoma.engine.api_keys import generate_secret
from retoma.records import CROSS_TENANT_SCOPES, Delivery, Scope
from retoma.server import make_server
from retoma.server.principal import RouteAccess, get_route_access
from retoma.server.server import list_routes
from retoma.settings import Settings
from retoma.store.database import Database
from tests.server import articles, letters
from tests.server.api import Api, app
from tests.server.conftest import OpenApi

# What anyone may call, and why: a load balancer asks for health, and a callback's token is its key.
PUBLIC = {"/healthz", "/readyz", "/api/v1/callbacks/{token}"}
# What only administrators may call.
ADMINISTRATION = {
    "/api/v1/workers/{worker}/stacks",
    "/api/v1/retention",
    "/api/v1/retention/rules",
    "/api/v1/retention/preview",
    "/api/v1/retention/run",
    "/api/v1/retention/holds",
    "/api/v1/runs/{run}/hold",
    "/api/v1/runs/{run}/erase",
    "/api/v1/tenants/{tenant}/erase",
}
# Even reading them takes the scope that changes them: they show who has access. So do connections.
PEOPLE = {"/api/v1/people", "/api/v1/people/{email}", "/api/v1/people/{email}/sessions"}
NO_REVIEW = UUID(int=9)
NO_DIGEST = "0" * 64
BODIES: dict[str, Any] = {
    "/api/v1/runs": {"pipeline": "film"},
    "/api/v1/runs/bulk": {"pipeline": "film", "inputs": [{}]},
    "/api/v1/pools/{pool}": {"capacity": 1},
    "/api/v1/queues/{queue}": {"concurrency": 1},
    "/api/v1/queues/{queue}/pause": {},
    "/api/v1/deliveries/redeliver": {"endpoint": 1},
    "/api/v1/runs/{run}/rerun": {},
    "/api/v1/runs/{run}/retry-now": {"step": "lines"},
    "/api/v1/bulk-actions": {"kind": "cancel_runs"},
    "/api/v1/bulk-actions/preview": {"kind": "cancel_runs"},
    "/api/v1/runs/{run}/orphans/resolve": {"step": "cut", "effect": "order", "resolution": "nothing_found"},
    "/api/v1/runs/{run}/edit": {"step": "cut", "value": "x"},
    "/api/v1/runs/{run}/skip": {"step": "image", "items": ["tea 0"]},
    "/api/v1/runs/{run}/fork": {},
    "/api/v1/reviews/decisions": {"decisions": [{"review": str(NO_REVIEW), "action": "approve"}]},
    "/api/v1/reviews/{review}/decision": {"action": "approve"},
    "/api/v1/reviews/{review}/assign": {"assignee": "ana"},
    "/api/v1/schedules": {"name": "hourly", "pipeline": "film", "every_seconds": 3600, "inputs": {"topic": "tea"}},
    "/api/v1/schedules/{schedule}": {"title": "Every hour"},
    "/api/v1/people": {"name": "New", "email": "new@example.com", "role": "viewer"},
    "/api/v1/people/{email}/role": {"role": "viewer", "tenant": "blog"},
    "/api/v1/budgets/{tenant}/{period}": {"micros": 1_000_000},
    "/api/v1/tenants/{tenant}/money": {},
    "/api/v1/connections/{tenant}/{service}": {"fields": {"api_key": "key"}},
    "/api/v1/retention/rules": {"keep": "P30D"},
    "/api/v1/runs/{run}/hold": {"reason": "a dispute"},
}
# Routes that name a thing of a tenant.
OF_A_TENANT = ("{run}", "{action}", "{delivery}", "{endpoint}", "{review}", "{subscription}", "{schedule}", "{tenant}")
# Routes that name nothing of a tenant, so that another tenant's key gets its own list or the same answer.
WITHOUT_A_TENANT = {
    "/metrics",
    "/api/v1/openapi.json",
    "/api/v1/pipelines",
    "/api/v1/pipelines/{pipeline}",
    "/api/v1/pools",
    "/api/v1/pools/{pool}",
    "/api/v1/queues",
    "/api/v1/workers",
    "/api/v1/schedule-preview",
    "/api/v1/connection-services",
}
# Routes that change something of the tenant that their path names.
CHANGING = {
    "PUT /api/v1/budgets/{tenant}/{period}",
    "DELETE /api/v1/budgets/{tenant}/{period}",
    "PUT /api/v1/tenants/{tenant}/money",
    "GET /api/v1/connections/{tenant}/{service}",
    "PUT /api/v1/connections/{tenant}/{service}",
    "DELETE /api/v1/connections/{tenant}/{service}",
    "POST /api/v1/connections/{tenant}/{service}/test",
}
# Things that this run has none of; their own tests ask for them.
WITHOUT_ONE = {
    "/api/v1/runs/{run}/orphans/resolve",
    "/api/v1/bulk-actions/{action}",
    "/api/v1/bulk-actions/{action}/abort",
}
LISTS = {
    "/api/v1/runs": "runs",
    "/api/v1/deliveries": "deliveries",
    "/api/v1/endpoints": "endpoints",
    "/api/v1/webhooks": "webhooks",
    "/api/v1/reviews": "reviews",
    "/api/v1/budgets": "budgets",
    "/api/v1/connections": "connections",
}
# Lists that begin empty for everyone; their own tests ask what is in them.
OF_LATER = {
    "/api/v1/audit",
    "/api/v1/live",
    "/api/v1/charges",
    "/api/v1/stuck",
    "/api/v1/orphans",
    "/api/v1/retries",
    "/api/v1/schedules",
}
STARTS = {
    "/api/v1/runs",
    "/api/v1/runs/bulk",
    "/api/v1/deliveries/redeliver",
    "/api/v1/reviews/decisions",
    "/api/v1/webhooks",
    "/api/v1/bulk-actions",
    "/api/v1/bulk-actions/preview",
    "/api/v1/schedules",
}


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    need: RouteAccess | None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def fill_path(
        self,
        run: UUID,
        delivery: UUID,
        endpoint: int,
        review: UUID = NO_REVIEW,
        schedule: int = 1,
        digest: str = NO_DIGEST,
    ) -> str:
        # A stream that follows what happens would never end.
        path = f"{self.path}?follow=false" if self.path.endswith("/live") else self.path
        return (
            path.replace("{run}", str(run))
            .replace("{delivery}", str(delivery))
            .replace("{endpoint}", str(endpoint))
            .replace("{subscription}", str(endpoint))
            .replace("{schedule}", str(schedule))
            .replace("{pool}", "gpu")
            .replace("{queue}", "default")
            .replace("{worker}", "1")
            .replace("{action}", str(UUID(int=6)))
            .replace("{pipeline}", "film")
            .replace("{digest}", digest)
            .replace("{review}", str(review))
            .replace("{step}", "cut")
            .replace("{email}", "subject@example.com")
            .replace("{tenant}", "blog")
            .replace("{period}", "month")
            .replace("{service}", "studio")
        )


Request = Callable[[str | None], Awaitable[Any]]  # the answer to a call with this key


def list_all_routes(server: FastAPI) -> Iterator[Route]:
    for context in list_routes(server):
        yield from (Route(method, str(context.path_format), get_route_access(context)) for method in methods(context))


def methods(context: RouteContext) -> list[str]:
    return sorted((context.methods or set()) - {"HEAD", "OPTIONS"})


ROUTES = list(list_all_routes(make_server(app, Client(app, Database("never asked", None)), Settings())))
WITH_KEY = [route for route in ROUTES if route.path not in PUBLIC]
each_route = pytest.mark.parametrize("route", WITH_KEY, ids=str)


@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_every_route_declares_who_may_call_it(route: Route) -> None:
    check_need(route, PUBLIC)


def check_need(route: Route, public: set[str]) -> None:
    assert route.need is not None, route
    assert route.need.needs_key == (route.path not in public), route
    if route.path in ADMINISTRATION:
        assert route.need.scope is Scope.ADMIN, route
    elif route.path in PEOPLE:
        assert route.need.scope is Scope.PEOPLE_WRITE, route
    elif "/connection" in route.path:
        assert route.need.scope is Scope.CONNECTIONS_WRITE, route
    elif route.need.needs_key and route.path != "/api/v1/openapi.json":
        wanted = "write" if route.method in ("POST", "PUT", "PATCH", "DELETE") else "read"
        assert route.need.scope is not None, route
        assert route.need.scope.endswith(f":{wanted}"), route


@each_route
async def test_a_valid_key_is_required(api: Api, route: Route) -> None:
    await check_keys(lambda key: call(api, route, key), await bad_keys(api))


async def bad_keys(api: Api) -> list[str | None]:
    revoked = await api.client.api_keys.create("revoked", list(Scope)[:2])
    await api.client.api_keys.revoke(revoked.key.id)
    return [None, "wrong", generate_secret(), revoked.secret]


async def check_keys(ask: Request, bad: Iterable[str | None]) -> None:
    for key in bad:
        assert (await ask(key)).status_code == 401


@each_route
async def test_a_route_requires_its_own_scope_or_admin(api: Api, route: Route) -> None:
    await check_scopes(route, lambda key: call(api, route, key), await keys_by_scope(api))


async def keys_by_scope(api: Api) -> dict[Scope, str]:
    return {scope: await api.make_key(scope) for scope in Scope}


async def check_scopes(route: Route, ask: Request, keys: Mapping[Scope, str]) -> None:
    assert route.need is not None
    for scope, key in keys.items():
        answer = await ask(key)
        passes = route.need.scope in (None, scope) or scope is Scope.ADMIN
        is_refused = answer.status_code == 403 and answer.json()["code"] == "SCOPE_MISSING"
        assert is_refused is not passes, f"{route}, {scope}: {answer.text}"
        assert answer.status_code != 401


@each_route
async def test_resources_of_another_tenant_are_not_found(open_api: OpenApi, route: Route, tmp_path: Path) -> None:
    assert route.need is not None
    if route.need.scope in CROSS_TENANT_SCOPES or route.need.scope is Scope.PEOPLE_WRITE:
        return  # the matrix has people
    async with open_api(application=letters.make_app(tmp_path)) as api:
        await check_tenants(api, route, route.need.scope or Scope.RUNS_READ)


async def check_tenants(api: Api, route: Route, scope: Scope) -> None:
    delivery = await make_delivery(api, tenant="blog")
    review = (
        UUID((await articles.start_until_review(api, tenant="blog"))["id"]) if "/reviews" in route.path else NO_REVIEW
    )
    if "/webhooks" in route.path:
        there = await api.client.webhooks.get_endpoint(delivery.endpoint)
        await api.client.webhooks.subscribe(there.url, ["run.ended"], tenant="blog")
    if "/budgets" in route.path:
        await api.client.budgets.set("blog", "month", 1_000_000)
    if "/connections" in route.path:
        await api.client.connections.set("studio", {"api_key": "key"}, tenant="blog")
    key = await api.make_key(scope, tenant="shop")
    own = await api.make_key(scope, tenant="blog")
    schedule = await api.client.schedules.create("hourly", "film", every=3600, inputs={"topic": "tea"}, tenant="blog")
    run, digest = delivery.run, NO_DIGEST
    if "{digest}" in route.path:
        run, digest = await letters.start_with_file(api, "a letter", tenant="blog")
    path = route.fill_path(run, delivery.id, delivery.endpoint, review, schedule.id, digest)
    answer = await api.call(route.method, path, key=key, json=BODIES.get(route.path))
    mine = await api.call(route.method, path, key=own, json=BODIES.get(route.path))
    if str(route) in CHANGING:
        assert (answer.status_code, answer.json()["code"]) == (403, "OTHER_TENANT")
        assert mine.status_code in (200, 204)
    elif any(part in route.path for part in OF_A_TENANT):
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
        assert mine.status_code != 404 or route.path in WITHOUT_ONE
    elif route.method == "GET" and route.path in LISTS:
        assert answer.json()[LISTS[route.path]] == []
        assert len(mine.json()[LISTS[route.path]]) == 1
        response = await api.get(path, key=key, params={"tenant": "blog"})
        assert response.json()[LISTS[route.path]] == []
    else:
        assert route.path in WITHOUT_A_TENANT | STARTS | OF_LATER, (
            "say here what another tenant's key gets of this route"
        )


@pytest.mark.parametrize("path", ["/api/v1/runs", "/api/v1/runs/bulk"])
async def test_a_key_starts_runs_of_its_own_tenant_only(api: Api, path: str) -> None:
    key = await api.make_key("runs:write", tenant="shop")
    assert (await api.post(path, key=key, json=BODIES[path] | {"tenant": "blog"})).json()["code"] == "OTHER_TENANT"
    assert (await api.post(path, key=key, json=BODIES[path])).status_code == 202
    assert (await api.post(path, key=key, json=BODIES[path] | {"tenant": "shop"})).status_code == 202
    assert {run.tenant for run in await api.client.runs.list()} == {"shop"}


async def call(api: Api, route: Route, key: str | None) -> Any:
    path = route.fill_path(UUID(int=7), UUID(int=8), 1)
    return await api.call(route.method, path, key=key, json=BODIES.get(route.path))


async def make_delivery(api: Api, tenant: str) -> Delivery:
    """Return the pending delivery for the webhook of a run of this tenant."""
    answer = await api.post(
        "/api/v1/runs",
        json={
            "pipeline": "film",
            "tenant": tenant,
            "webhook": {"url": "https://hooks.example/x", "events": ["run.started"]},
        },
    )
    (delivery,) = await api.client.webhooks.list_deliveries(run=UUID(answer.json()["id"]))
    return delivery


async def test_development_opens_every_route_to_this_machine(open_api: OpenApi) -> None:
    async with open_api(scopes=None, development=True, address="127.0.0.1", host="localhost:8765") as api:
        for route in WITH_KEY:
            assert (await call(api, route, api.key)).status_code not in (401, 403, 429, 500)
            assert (await call(api, route, None)).status_code in (401, 429)
