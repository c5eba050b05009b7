"""A client that is limited to some tenants, with every method that takes an object: a new method is asked too."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from retoma import Pipeline
from retoma.client import Client
from retoma.client.core import Namespace
from retoma.engine.reviews import Decision
from retoma.errors import AccessDenied, NotFound, RoleMissing
from retoma.records import Actor, ActorKind, Scope
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox

OWN, OTHER = "own", "other"
essay = Pipeline("essay")


@essay.step
def draft() -> str:
    return "words"


essay.review("approval", of=draft)
OBJECTS = ("run", "review", "delivery", "endpoint", "subscription")
# Values of the other parameters that must be given.
VALUES: dict[str, Any] = {
    "step": "draft",
    "source": "draft",
    "value": "words",
    "items": ["a"],
    "effect": "call",
    "resolution": "nothing_found",
    "digest": "0" * 64,
    "key": "key",
    "request": "request",
    "action": None,
    "decision": Decision("approve", by="ana"),
    "assignee": "ana",
    "position": 0,
    "by": "ana",
    "draft": {},
    "person": "ana",
    "reason": "a dispute",
}
# Checks a signature, not a caller.
NOT_ABOUT_A_CALLER = {"files.check_link"}


def list_methods(client: Client) -> Iterator[tuple[str, Any]]:
    """Every method of a namespace that takes an object."""
    for name, namespace in vars(client).items():
        if isinstance(namespace, Namespace) and not name.startswith("_"):
            for each, method in inspect.getmembers(namespace, inspect.iscoroutinefunction):
                first = next(iter(inspect.signature(method).parameters), "")
                if not each.startswith("_") and first in OBJECTS and f"{name}.{each}" not in NOT_ABOUT_A_CALLER:
                    yield f"{name}.{each}", method


async def make_objects(sandbox: Sandbox) -> dict[str, Any]:
    run = await sandbox.client.start(essay, tenant=OWN)
    await sandbox.work(advance_clock=False)
    (review,) = await sandbox.client.reviews.list()
    subscription = await sandbox.client.webhooks.subscribe("https://hooks.example/x", ["run.ended"], tenant=OWN)
    found = await sandbox.client.runs.get(run.id)
    return {
        "run": run.id,
        "review": review.id,
        "delivery": run.id,
        "endpoint": subscription.id,
        "subscription": subscription.id,
        "Run": found,
        "Review": review,
    }


def bind(method: Any, objects: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    first, *others = inspect.signature(method).parameters.values()
    kind = str(first.annotation)
    given = objects[kind] if kind in ("Run", "Review") else objects[first.name]
    needed = [each for each in others if each.default is each.empty and each.kind is not each.VAR_POSITIONAL]
    values = [VALUES[each.name] for each in needed if each.kind is not each.KEYWORD_ONLY]
    return [given, *values], {each.name: VALUES[each.name] for each in needed if each.kind is each.KEYWORD_ONLY}


async def test_no_method_shows_or_changes_an_object_of_another_tenant(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(essay) as sandbox:
        objects = await make_objects(sandbox)
        stranger = sandbox.client.limit_to([OTHER])
        leaks = []
        for name, method in list_methods(stranger):
            arguments, options = bind(method, objects)
            try:
                answer = await method(*arguments, **options)
            except (NotFound, AccessDenied):
                continue
            if answer:
                leaks.append(f"{name}: {answer!r:.100}")
        assert leaks == []
        assert len(list(list_methods(stranger))) > 30
        assert (await sandbox.client.reviews.get(objects["review"])).is_open


async def test_lists_leave_out_other_tenants(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(essay) as sandbox:
        await make_objects(sandbox)
        stranger, both = sandbox.client.limit_to([OTHER]), sandbox.client.limit_to([OTHER, OWN])
        for client, count in ((stranger, 0), (both, 1)):
            assert len(await client.runs.list()) == count
            assert len(await client.runs.list(title="x", tenant=OWN)) == 0
            assert len(await client.reviews.list()) == count
            assert sum(each.open for each in await client.reviews.count_open()) == count
            assert len(await client.webhooks.list_subscriptions()) == count
            assert (await client.metrics.get_snapshot()).open_runs == count
        assert await stranger.runs.list(tenant=OWN) == []


async def test_a_limited_client_starts_nothing_elsewhere(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(essay) as sandbox:
        stranger = sandbox.client.limit_to([OTHER])
        with pytest.raises(AccessDenied, match="may not act on the tenant 'own'"):
            await stranger.start(essay, tenant=OWN)
        with pytest.raises(AccessDenied, match="all tenants"):
            await stranger.queues.pause("default")
        assert await sandbox.client.runs.list() == []


async def test_a_visible_object_says_which_role_is_missing(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(essay) as sandbox:
        objects = await make_objects(sandbox)
        viewer = sandbox.client.limit_to([OTHER], visible=[OWN, OTHER], scope=Scope.RUNS_WRITE)
        with pytest.raises(RoleMissing, match="the role operator in the tenant 'own'"):
            await viewer.runs.cancel(objects["run"])


async def test_a_limit_never_becomes_wider(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(essay) as sandbox:
        narrow = sandbox.client.limit_to([OTHER])
        for client in (narrow.limit_to([OWN, OTHER]), narrow.acting_as(Actor(ActorKind.PERSON, "1", "Ana"))):
            assert client.allowed_tenants == frozenset({OTHER})


async def test_the_actor_is_the_author(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(essay) as sandbox:
        objects = await make_objects(sandbox)
        ana = sandbox.client.acting_as(Actor(ActorKind.PERSON, "1", "Ana"))
        assert await ana.reviews.claim(objects["review"], duration=timedelta(minutes=1)) == "Ana"
