"""Every route and page of Retoma with every kind of caller. A route or page without a rule fails here."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from retoma import Webhook
from retoma.client.bulk_actions import BulkFilter
from retoma.errors import DefinitionError
from retoma.records import BulkKind, Role, Scope
from retoma.server import Page, auth
from retoma.server.pages.registry import PAGES
from tests.server import articles, letters
from tests.server.access_matrix import (
    OWN,
    ROLES,
    Caller,
    Target,
    check,
    describe,
    expect,
    list_page_targets,
    make_disabled,
    make_keys,
    make_people,
    send,
)
from tests.server.api import Api
from tests.server.conftest import OpenApi
from tests.server.test_authorisation import BODIES, OF_A_TENANT, WITH_KEY

SECRET = "marker-of-another-tenant"
PERSON = "subject@example.com"
NOTHING = "00000000-0000-4000-8000-000000000000"  # of the pages that show whatever there is under an id
FIELDS = {
    "/people": {"name": "New", "email": "new@example.com", "role": "viewer", "tenant": OWN},
    "/people/role": {"email": PERSON, "role": "viewer", "tenant": OWN},
    **{f"/people/{action}": {"email": PERSON} for action in ("link", "disable", "enable", "end-sessions")},
    "/runs/{run}/rerun": {"what": "stale"},
    "/runs/{run}/resolve-orphan": {"step": "cut", "effect": "order", "resolution": "nothing_found"},
    "/schedules/new": {"name": "new", "pipeline": "film", "tenant": OWN, "time_zone": "UTC", "every": "1"},
    "/schedules/{schedule}/edit": {"revision": "1", "title": "Edited"},
    "/pools": {"pool": "gpu", "capacity": "1"},
    **{f"/queues/{action}": {"queue": "default", "capacity": "3"} for action in ("limit", "pause", "resume")},
    "/workers": {"worker": "1"},
    "/budgets": {"tenant": OWN, "period": "month", "limit": "1"},
    "/budgets/remove": {"tenant": OWN, "period": "month"},
    "/budgets/money": {"tenant": OWN},
    "/connections": {"tenant": OWN, "service": "studio", "account": "news", "field.api_key": "key"},
    **{f"/connections/{action}": {"tenant": OWN, "service": "studio"} for action in ("test", "delete")},
    "/workers/stacks": {"worker": "1"},
}
NAMING_A_TENANT = {
    "POST /api/v1/people": {"name": "New", "email": "another@example.com", "role": "viewer", "tenant": OWN},
    "PUT /api/v1/people/{email}/role": {"role": "viewer", "tenant": OWN},
    "DELETE /api/v1/people/{email}/role": None,
    "PUT /api/v1/budgets/{tenant}/{period}": {"micros": 2_000_000},
    "DELETE /api/v1/budgets/{tenant}/{period}": None,
    "PUT /api/v1/tenants/{tenant}/money": {"time_zone": "UTC"},
    "GET /api/v1/connections/{tenant}/{service}": None,
    "PUT /api/v1/connections/{tenant}/{service}": {"fields": {"api_key": "key"}},
    "DELETE /api/v1/connections/{tenant}/{service}": None,
    "POST /api/v1/connections/{tenant}/{service}/test": None,
}
# They give the role of a viewer, or act on the account of one.
OF_A_VIEWER = {
    "POST /api/v1/people",
    "PUT /api/v1/people/{email}/role",
    "DELETE /api/v1/people/{email}/role",
    "POST /api/v1/people/{email}/link",
    "POST /api/v1/people/{email}/disable",
    "POST /api/v1/people/{email}/enable",
    "GET /api/v1/people/{email}/sessions",
    "DELETE /api/v1/people/{email}/sessions",
}


@dataclass(frozen=True)
class Objects:
    """One object of each kind, all of one tenant."""

    api: Api
    things: dict[str, str]

    def list_targets(self) -> list[Target]:
        routes = [
            Target(
                route.method,
                route.path,
                self.fill(route.path),
                None if route.need is None else route.need.scope,
                names_object=any(part in route.path for part in (*OF_A_TENANT, "{email}")),
                body=NAMING_A_TENANT.get(str(route)) or BODIES.get(route.path),
                names_tenant=str(route) in NAMING_A_TENANT,
                gives=Scope.RUNS_READ if str(route) in OF_A_VIEWER else None,
            )
            # Last the one after which the person is nobody's: everybody could reset an account without a role.
            for route in sorted(WITH_KEY, key=lambda route: str(route) == "DELETE /api/v1/people/{email}/role")
        ]
        ours = [page for page in PAGES if page.path != "/logout"]  # it would end the caller's session
        return [*routes, *list_page_targets(ours, self.things, FIELDS)]

    def fill(self, path: str) -> str:
        things = self.things | ({"run": self.things["run_with_file"]} if "{digest}" in path else {})
        for name, thing in things.items():
            path = path.replace(f"{{{name}}}", thing)
        assert "{" not in path, f"say in `things` what {path} names"
        query = {"/live": "?follow=false", "/role": f"?tenant={OWN}"}.get(path[path.rindex("/") :], "")
        return path + query

    async def read_states(self) -> tuple[object, ...]:
        """What nobody without access to the tenant may change."""
        client = self.api.client
        runs = {(run.id, run.state, run.revision) for run in await client.runs.list(tenant=OWN)}
        review = await client.reviews.get(UUID(self.things["review"]))
        person = await client.people.get(PERSON)
        return runs, review.state, review.claimed_by, review.assignee, person.roles, person.disabled_at


@pytest.fixture
async def objects(open_api: OpenApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Objects]:
    monkeypatch.setattr(auth, "FAILURES_PER_MINUTE", 100_000)
    async with open_api(application=letters.make_app(tmp_path)) as api:
        client = api.client
        run_with_file, digest = await letters.start_with_file(api, SECRET, tenant=OWN)
        hook = Webhook("https://hooks.example/x", ("run.started",))
        run = await client.start("film", {"topic": SECRET}, tenant=OWN, webhook=hook)
        (delivery,) = await client.webhooks.list_deliveries(run=run.id)
        review = await articles.start_until_review(api, tenant=OWN, topic=SECRET)
        subscription = await client.webhooks.subscribe("https://hooks.example/y", ["run.ended"], tenant=OWN)
        action = await client.bulk_actions.start(BulkKind.CANCEL_RUNS, BulkFilter(title="no run"), tenant=OWN)
        await client.people.create(SECRET, PERSON, role=Role.VIEWER, tenant=OWN)
        schedule = await client.schedules.create("daily", "film", every=86_400, inputs={"topic": SECRET}, tenant=OWN)
        await client.budgets.set(OWN, "month", 1_000_000, by=SECRET)
        await client.connections.set("studio", {"api_key": SECRET, "voice": SECRET}, tenant=OWN)
        things = {
            "schedule": str(schedule.id),
            "run": str(run.id),
            "run_with_file": str(run_with_file),
            "delivery": str(delivery.id),
            "endpoint": str(delivery.endpoint),
            "subscription": str(subscription.id),
            "review": review["id"],
            "action": str(action.id),
            "email": PERSON,
            "batch": NOTHING,
            "message": NOTHING,
            "pool": "gpu",
            "queue": "default",
            "worker": "1",
            "pipeline": "film",
            "digest": digest,
            "step": "cut",
            "tenant": OWN,
            "period": "month",
            "service": "studio",
        }
        yield Objects(api, things)


async def test_every_person_may_do_exactly_what_the_role_says(objects: Objects) -> None:
    callers, targets = await make_people(objects.api), objects.list_targets()
    before, began = await objects.read_states(), time.monotonic()
    strangers = [caller for caller in callers if not caller.may(Scope.RUNS_READ, OWN)]
    count = await check(objects.api, strangers, targets, SECRET)
    assert await objects.read_states() == before, "somebody without access has changed something"
    count += await check(objects.api, [each for each in callers if each not in strangers], targets, SECRET)
    print(f"{count} requests in {time.monotonic() - began:.1f} s")


async def test_every_key_may_do_exactly_what_its_scopes_say(objects: Objects) -> None:
    callers = await make_keys(objects.api)
    before = await objects.read_states()
    strangers = [caller for caller in callers if not any(caller.may(scope, OWN) for scope in Scope)]
    await check(objects.api, strangers, objects.list_targets(), SECRET)
    assert await objects.read_states() == before, "a key of another tenant has changed something"
    await check(objects.api, [each for each in callers if each not in strangers], objects.list_targets(), SECRET)


async def test_a_disabled_person_may_do_nothing(objects: Objects) -> None:
    caller = await make_disabled(objects.api)
    for target in objects.list_targets():
        answer = await send(objects.api, caller, target)
        assert describe(answer, target) == ("not logged in" if target.is_page else "denied"), target


async def test_an_operator_sees_the_object_of_every_request(objects: Objects) -> None:
    """Otherwise the matrix would compare addresses at which there is nothing."""
    (operator,) = [each for each in await make_people(objects.api) if each.name == "administrator-everywhere"]
    absent = {
        "{pool}",
        "{worker}",
        "/orphans/resolve",
        "/autoscale/",
        "/subscriptions",
        "/webhooks/",
        "{batch}",
    }
    for target in objects.list_targets():
        if target.names_object and target.method == "GET" and not any(part in target.path for part in absent):
            assert (await send(objects.api, operator, target)).status_code in (200, 204), target


async def test_a_file_is_sent_to_those_who_may_read_its_run_and_to_nobody_else(objects: Objects) -> None:
    (target,) = [each for each in objects.list_targets() if "{digest}" in each.path and each.method == "GET"]
    callers = [*await make_people(objects.api), *await make_keys(objects.api)]
    for caller in callers:
        answer = await send(objects.api, caller, target)
        if caller.may(Scope.RUNS_READ, OWN):
            assert (answer.status_code, answer.text) == (200, SECRET), caller
        else:
            assert answer.status_code in (403, 404), caller
    assert {caller.may(Scope.RUNS_READ, OWN) for caller in callers} == {True, False}


def test_the_table_has_every_scope() -> None:
    assert set(ROLES) == set(Scope)


def test_a_check_that_is_missing_would_be_found() -> None:
    viewer = Caller("viewer", roles={OWN: Role.VIEWER})
    target = Target("POST", "/x", "/x", Scope.RUNS_WRITE, names_object=True)
    assert expect(viewer, target) == "denied"
    assert expect(Caller("both", roles={OWN: Role.VIEWER, "other": Role.OPERATOR}), target) == "visible"
    assert expect(Caller("stranger", roles={"other": Role.OPERATOR}), target) == "hidden"


def test_a_page_with_a_form_must_declare_who_may_send_it() -> None:
    async def submit(context: object) -> None: ...

    with pytest.raises(DefinitionError, match="does not declare who may send its form"):
        Page("/x", submit=submit)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="not a scope"):
        Page("/x", submit, scope="runs:look")  # type: ignore[arg-type]
