"""Nothing that changes something is missing from the audit log: methods and routes are found, not listed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from retoma.client import Client
from retoma.client.core import Namespace
from retoma.records import ActorKind, AuditAction, Channel, Role, Scope
from retoma.server.pages import audit as audit_page
from retoma.server.pages.registry import PAGES
from retoma.store import notifications
from retoma.store.database import Database
from tests.notifications.builders import ALL_KINDS
from tests.server import articles
from tests.server.access_matrix import list_page_targets, make_person, send
from tests.server.api import Api
from tests.server.conftest import OpenApi
from tests.server.test_access_matrix import FIELDS, Objects, objects
from tests.server.test_authorisation import BODIES, ROUTES, Route, make_delivery

__all__ = ["objects"]
# A method with such a name only reads. `wait` and `estimate` do not even change what they wait for.
READS = re.compile(r"_?(get|list|find|count|has|check|preview|choose|wait|estimate|sign)(_|$)|now$")
# Methods that change something and have no entry, and why.
WITHOUT_ENTRY = {
    "run": "it is a start",
    "close": "it changes nothing in the database",
    "scope_to": "it returns a client",
    "limit_to": "it returns a client",
    "acting_as": "it returns a client",
    "runs.get_or_record_answer": "the actions inside it have entries",
    "external_work.record_callback": "a provider calls, not a person",
    "inbound_events.record": "another system sends",
    "inbound_events.fill_gaps": "another system sends",
    "bulk_actions.advance": "it carries out what has an entry",
    "schedules.start_due": "it carries out what has an entry",
    "files.save": "the data that names the file has one",
    "notifications.send_test": "it sends a message to oneself",
    "notifications.report_budget": "an application calls, not a person",
    "connections.finish_consent": "it sets the connection, which has one",
    "reviews.decide_many": "each decision has its own",
}
WRITES = ("POST", "PUT", "PATCH", "DELETE")
# Routes that write and leave no entry for a key, and why.
ROUTES_WITHOUT_ENTRY = {
    "/api/v1/runs": "a key starts many runs",
    "/api/v1/runs/bulk": "a key starts many runs",
    "/api/v1/bulk-actions/preview": "it changes nothing",
    "/api/v1/callbacks/{token}": "a provider calls, not a person",
}


def list_client_methods() -> Iterator[tuple[str, Any]]:
    client = Client(None, Database("never asked", None))
    spaces = {"": client} | {f"{name}.": space for name, space in vars(client).items() if isinstance(space, Namespace)}
    for prefix, space in spaces.items():
        for name, method in inspect.getmembers(type(space), inspect.isfunction):
            if not name.startswith("_"):
                yield f"{prefix}{name}", method


METHODS = dict(list_client_methods())
WRITING = sorted(name for name in METHODS if not READS.match(name.rpartition(".")[2]))


def test_the_table_of_exceptions_names_methods_that_exist() -> None:
    assert WITHOUT_ENTRY.keys() <= METHODS.keys()


@pytest.mark.parametrize("name", [name for name in WRITING if name not in WITHOUT_ENTRY])
def test_every_method_that_writes_has_an_entry(name: str) -> None:
    """It records directly, or by a method of its own class that does."""
    assert records(METHODS[name]), f"client.{name} changes something without an entry of the audit log"


def records(method: Any, seen: frozenset[str] = frozenset()) -> bool:
    source = inspect.getsource(method)
    if "self._recording(" in source or ".recording(" in source:
        return True
    module = inspect.getmodule(method)
    owner = getattr(module, method.__qualname__.partition(".")[0])
    helpers = set(re.findall(r"self\.(_\w+)\(", source)) - seen - {"_recording"}
    return any(records(getattr(owner, name), seen | helpers) for name in helpers if hasattr(owner, name))


def test_every_action_has_a_name_on_the_page() -> None:
    assert set(audit_page.ACTIONS) == set(AuditAction)
    assert {action.object_kind for action in AuditAction} == set(audit_page.OBJECT_KINDS)
    assert set(audit_page.ACTOR_KINDS) == set(ActorKind)


@pytest.mark.parametrize(
    "route", [each for each in ROUTES if each.method in WRITES and each.path not in ROUTES_WITHOUT_ENTRY], ids=str
)
async def test_every_route_that_writes_leaves_one_entry_with_the_name_of_its_key(
    open_api: OpenApi, route: Route
) -> None:
    """A refused request leaves none; what a route does if it succeeds is the matter of its method above."""
    async with open_api(application=articles.app) as api:
        review = UUID((await articles.start_until_review(api, tenant="blog"))["id"])
        delivery = await make_delivery(api, tenant="blog")
        key = await api.make_key(Scope.ADMIN, name="newsroom")
        before = len(await api.client.audit.list(limit=1000))
        path = route.fill_path(delivery.run, delivery.id, delivery.endpoint, review)
        answer = await api.call(route.method, path, key=key, json=BODIES.get(route.path))
        entries = (await api.client.audit.list(limit=1000))[: len(await api.client.audit.list(limit=1000)) - before]
        if not answer.is_success:
            assert entries == []
        elif route.path not in UNCHANGED:
            assert [(entry.actor_kind, entry.actor_name) for entry in entries] == [(ActorKind.KEY, "newsroom")]


# Requests of this test that succeed and change nothing: nothing is dead, paused, decided or old.
UNCHANGED = {
    "/api/v1/retention/run",
    "/api/v1/reviews/{review}/undo",
    "/api/v1/deliveries/redeliver",
    "/api/v1/queues/{queue}/resume",
    "/api/v1/reviews/decisions",
}


# What the forms of the pages hold; in the others a value is missing or wrong.
FORMS = {
    **FIELDS,
    "/account": {"name": "Ana Souza"},
    "/account/notifications": {"channel": "email", "digest": "daily"},
    "/account/notifications/quiet-hours": {"from": "22:00", "until": "06:00"},
    "/account/notifications/test": {"channel": "email"},
    "/notifications": {"channel": "email", "digest": "daily"},
    "/reviews/keys": {"approve": "z"},
    "/runs/{run}/cancel": {},
    "/runs/{run}/erase": {},
}
# Pages that take these forms and leave no entry, and why.
PAGES_WITHOUT_ENTRY = {
    "/account/notifications/test": "it sends a message to oneself",
    "/runs/{run}/rerun": "nothing is stale",
}


async def test_every_page_that_writes_leaves_entries_by_the_person_and_the_address(objects: Objects) -> None:
    api = objects.api
    await notifications.add_channel(api.client.database, Channel.EMAIL, ALL_KINDS)
    own = [page for page in PAGES if page.submit and not page.is_public and page.path != "/logout"]
    ana = await make_person(api, "ana", {None: Role.ADMINISTRATOR})
    silent, wrong = set(), []
    for target in list_page_targets([replace(page, show=None) for page in own], objects.things, FORMS):
        before = await api.client.audit.list(limit=1)
        answer = await send(api, ana, target)
        found = await api.client.audit.list(limit=20)
        found = [entry for entry in found if not before or entry.id > before[0].id]
        wrong += [
            (target.path, entry.action, entry.actor_kind, entry.actor_name)
            for entry in found
            if (entry.actor_kind, entry.actor_name) not in ((ActorKind.PERSON, "ana"), (ActorKind.PERSON, "Ana Souza"))
            or entry.address is None
        ]
        if target.path in FORMS and answer.status_code in (200, 303) and not found:
            silent.add(target.path)
    assert wrong == []
    assert silent == PAGES_WITHOUT_ENTRY.keys()


async def test_a_key_sees_the_entries_of_its_own_tenant_only(open_api: OpenApi) -> None:
    async with open_api() as api:
        await api.client.api_keys.create("one", [Scope.RUNS_READ], tenant="blog")
        await api.client.api_keys.create("two", [Scope.RUNS_READ], tenant="shop")
        await api.client.costs.set_price("openrouter", "small", unit=1)
        shop = await api.make_key("audit:read", tenant="shop", name="log")
        shown = await read_names(api, shop)
        assert shown == ["log", "two"]
        assert await read_names(api, shop, tenant="blog") == []
        assert len(await read_names(api, await api.make_key("audit:read", name="all"))) > 4


async def read_names(api: Api, key: str, **query: str) -> list[str | None]:
    answer = await api.get("/api/v1/audit", key=key, params=query)
    return [(entry["after"] or {}).get("name") for entry in answer.json()["entries"]]
