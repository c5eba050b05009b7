"""Every change through the client leaves an entry of the audit log, in its transaction, by the name of its actor."""

from __future__ import annotations

from datetime import time, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from retoma import Pipeline
from retoma.engine.reviews import Decision
from retoma.errors import Conflict, InvalidInput, RunBusy
from retoma.records import (
    Actor,
    ActorKind,
    AuditAction,
    AuditEntry,
    Channel,
    Digest,
    NotificationKind,
    Scope,
)
from retoma.store import audit_log, notifications
from retoma.store.audit_log import AuditFilter
from retoma.store.database import Database
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox

ANA = Actor(ActorKind.PERSON, "7", "Ana Lima", "203.0.113.5")
story = Pipeline("story")


@story.step
def draft() -> str:
    return "once upon a time"


approved = story.review("approved", of=draft)


async def list_entries(database: Database, **wanted: object) -> list[AuditEntry]:
    """Return the entries in the order in which they were written."""
    return (await audit_log.list_entries(database, AuditFilter(**wanted)))[::-1]  # type: ignore[arg-type]


async def test_an_entry_says_who_what_where_before_and_after(open_sandbox: OpenSandbox, database: Database) -> None:
    async with open_sandbox(story) as sandbox:
        client = sandbox.client.acting_as(ANA)
        run = await client.start(story, tenant="blog")
        await sandbox.work()
        (review,) = await client.reviews.list()
        await client.reviews.decide(review.id, Decision("approve", by=ANA.name, value="once", notes="shorter"))
        entry = (await list_entries(database, object_kind="review"))[-1]
    assert (entry.actor_kind, entry.actor_id, entry.actor_name, entry.address) == tuple(vars(ANA).values())
    assert (entry.action, entry.object_id, entry.tenant) == (AuditAction.REVIEW_DECIDE, str(review.id), "blog")
    assert entry.before == {"state": "open", "revision": 1}
    assert entry.after is not None
    assert {
        "decision": "approve",
        "value": "once",
        "notes": "shorter",
        "run": str(run.id),
    }.items() <= entry.after.items()


async def test_a_repeated_action_has_one_entry(open_sandbox: OpenSandbox, database: Database) -> None:
    async with open_sandbox(story) as sandbox:
        client = sandbox.client.acting_as(ANA)
        run = await client.start(story, key="one")
        assert (await client.start(story, key="one")).id == run.id
        for _ in range(2):
            await client.runs.cancel(run.id, key="stop")
    assert [entry.action for entry in await list_entries(database)] == ["run.start", "run.cancel"]


async def test_a_refused_action_has_no_entry(open_sandbox: OpenSandbox, database: Database) -> None:
    async with open_sandbox(story) as sandbox:
        client = sandbox.client.acting_as(ANA)
        run = await client.start(story)
        await sandbox.work()
        with pytest.raises(RunBusy):
            await client.runs.skip(run.id, "draft", [""])
        for number in range(3):
            try:
                await client.api_keys.create("one", [Scope.RUNS_READ])
            except Conflict:
                assert number == 2
    assert [entry.action for entry in await list_entries(database)] == ["run.start", "api_key.create", "api_key.create"]


async def test_the_entry_and_its_change_are_one_transaction(open_sandbox: OpenSandbox, database: Database) -> None:
    """If the entry cannot be written, nothing changes."""
    async with open_sandbox(story) as sandbox:
        run = await sandbox.client.start(story)
        nobody = Actor(ActorKind.PERSON, "7", None, None)  # type: ignore[arg-type]
        with pytest.raises(asyncpg.NotNullViolationError):
            await sandbox.client.acting_as(nobody).runs.cancel(run.id, by="x")
        assert (await sandbox.client.runs.get(run.id)).state == "running"


async def test_a_start_by_a_program_or_key_has_no_entry(open_sandbox: OpenSandbox, database: Database) -> None:
    async with open_sandbox(story) as sandbox:
        await sandbox.client.start(story)
        await sandbox.client.acting_as(Actor(ActorKind.KEY, "3", "n8n")).start(story)
        await sandbox.client.acting_as(ANA).start_many(story, [None] * 3)
    (entry,) = await list_entries(database)
    assert (entry.actor_name, entry.after) == ("Ana Lima", {"pipeline": "story", "runs": 3})


async def test_events_have_the_name_of_the_actor(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(story) as sandbox:
        client = sandbox.client.acting_as(ANA)
        run = await client.start(story)
        await sandbox.work()
        (review,) = await client.reviews.list()
        assert await client.reviews.claim(review.id) == "Ana Lima"
        await client.runs.cancel(run.id)
        (cancelled,) = [event for event in await client.runs.list_events(run.id) if "by" in (event.data or {})][-1:]
    assert cancelled.data is not None
    assert cancelled.data["by"] == "Ana Lima"


@pytest.mark.parametrize(
    "statement", ["update retoma.audit_log set actor_name = 'Eve'", "delete from retoma.audit_log"]
)
async def test_the_audit_log_is_append_only(sandbox_with_entry: Sandbox, database: Database, statement: str) -> None:
    async with database.connection() as connection:
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            await connection.execute(statement)


@pytest.fixture
async def sandbox_with_entry(open_sandbox: OpenSandbox) -> Sandbox:
    async with open_sandbox(story) as sandbox:
        await sandbox.client.acting_as(ANA).start(story)
    return sandbox


async def test_secrets_stay_out_of_the_log(
    open_sandbox: OpenSandbox, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, typed = uuid4().hex, uuid4().hex
    monkeypatch.setenv("PROVIDER_API_KEY", known)
    async with open_sandbox(story) as sandbox:
        client = sandbox.client.acting_as(ANA)
        await client.tenants.set_profile("blog", {"tone": f"dry {known}", "wordpress": {"password": typed}})
        made = await client.api_keys.create("n8n", [Scope.RUNS_READ], tenant="blog")
        made = await client.api_keys.rotate(made.key.id)
        subscribed = await client.webhooks.subscribe("https://hooks.example/x", ["run.ended"], tenant="blog")
        secret = await client.webhooks.rotate_secret(subscribed.id)
    text = repr(await list_entries(database))
    assert "hooks.example" in text
    for each in (known, typed, made.secret, subscribed.secret, secret):
        assert str(each) not in text


async def test_a_long_value_is_kept_in_part(open_sandbox: OpenSandbox, database: Database) -> None:
    async with open_sandbox(story) as sandbox:
        await sandbox.client.acting_as(ANA).tenants.set_profile("blog", {"rules": "be kind. " * 1000})
    (entry,) = await list_entries(database)
    assert entry.after is not None
    assert entry.after["rules"]["characters"] == 9002
    assert entry.after["rules"]["starts_with"].startswith('"be kind.')


async def test_only_old_entries_are_deleted_and_that_has_an_entry(
    open_sandbox: OpenSandbox, database: Database
) -> None:
    async with open_sandbox(story) as sandbox:
        client = sandbox.client.acting_as(ANA)
        await client.start(story)
        await sandbox.clock.advance(timedelta(days=400))
        await client.start(story)
        now = await client.now()
        with pytest.raises(InvalidInput, match="in the future"):
            await client.audit.delete_before(now + timedelta(seconds=1))
        assert await client.audit.delete_before(now - timedelta(days=365)) == 1
        newest, kept = await client.audit.list()
    assert (newest.action, newest.actor_name, kept.action) == ("audit.delete", "Ana Lima", "run.start")
    assert newest.after is not None
    assert newest.after["entries"] == 1


async def test_entries_are_found_by_actor_action_object_tenant_and_time(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(story) as sandbox:
        client = sandbox.client.acting_as(ANA)
        first = await client.start(story, tenant="blog")
        await client.runs.cancel(first.id)
        between = await client.now()
        await sandbox.clock.advance(timedelta(hours=1))
        other = client.acting_as(Actor(ActorKind.COMMAND_LINE, "root", "root"))
        await other.start(story, tenant="shop")
        await other.api_keys.create("n8n", [Scope.RUNS_READ])

        async def find(**wanted: Any) -> list[str]:
            return [entry.action for entry in await client.audit.list(**wanted)][::-1]

        assert await find() == ["run.start", "run.cancel", "run.start", "api_key.create"]
        assert await find(actor="root") == ["run.start", "api_key.create"]
        assert await find(action="run") == ["run.start", "run.cancel", "run.start"]
        assert await find(action="run.cancel") == ["run.cancel"]
        assert await find(object_kind="run", object_id=str(first.id)) == ["run.start", "run.cancel"]
        assert await find(tenant="shop") == ["run.start"]
        assert await find(tenant="nobody") == []
        assert await find(since=between + timedelta(minutes=1)) == ["run.start", "api_key.create"]
        assert await find(until=between + timedelta(minutes=1)) == ["run.start", "run.cancel"]
        (newest,) = await client.audit.list(limit=1)
        assert await find(before=newest.id, limit=1) == ["run.start"]
        assert await client.audit.list_actors() == ["Ana Lima", "root"]
        assert await client.audit.list_actors(tenant="shop") == ["root"]


async def test_entries_about_a_person_are_seen_in_every_tenant_of_a_role(
    open_sandbox: OpenSandbox, database: Database
) -> None:
    async with open_sandbox(story) as sandbox:
        people, email = sandbox.client.people, "bo@example.com"
        await people.create("Bo", email, role="viewer", tenant="blog")
        await people.create_link(email)
        await people.set_role(email, "viewer", tenant="shop")
        await people.end_sessions(email)
        await people.remove_role(email, tenant="blog")
        await people.disable(email)

        async def list_actions(tenant: str) -> list[str]:
            found = await sandbox.client.limit_to([tenant]).audit.list(object_kind="person")
            return [entry.action.removeprefix("person.") for entry in found][::-1]

        assert await list_actions("blog") == ["create", "invite", "end_sessions", "remove_role"]
        assert await list_actions("shop") == ["set_role", "end_sessions", "disable"]
        assert await list_actions("other") == []
        assert await sandbox.client.limit_to(["other"]).audit.list_actors() == []


async def test_notifications_and_keys_say_what_they_were_before(open_sandbox: OpenSandbox, database: Database) -> None:
    async with open_sandbox(story) as sandbox:
        person = await sandbox.client.people.create("Ana Lima", "ana@example.com")
        actor = Actor(ActorKind.PERSON, str(person.id), "Ana Lima", "203.0.113.5")
        client, url = sandbox.client.acting_as(actor), "https://hooks.slack.com/services/a-secret-part"
        await notifications.add_channel(database, Channel.EMAIL, [NotificationKind.BUDGET])
        await client.notifications.set_default(Channel.EMAIL, [], Digest.DAILY)
        await client.notifications.set_preference(person.id, Channel.SLACK, kinds=None, digest=None, address=url)
        await client.notifications.set_preference(
            person.id, Channel.SLACK, kinds=[NotificationKind.BUDGET], digest=Digest.HOURLY, address=f"{url}/2"
        )
        await client.notifications.set_quiet_hours(person.id, time(22), time(6))
        await client.notifications.set_quiet_hours(person.id, None, None)
        await client.reviews.set_keys({"approve": "z"})
        await client.reviews.set_keys({})
        found = await list_entries(database, actor="Ana Lima")
    hidden = {"channel": "slack", "address": "***"}
    assert [(entry.action.partition(".")[2], entry.before, entry.after) for entry in found] == [
        ("set_default", {"kinds": ["budget"], "digest": "immediately"}, {"kinds": [], "digest": "daily"}),
        ("set_notifications", {"channel": "slack"}, {**hidden, "address_changed": True}),
        (
            "set_notifications",
            hidden,
            {**hidden, "kinds": ["budget"], "digest": "hourly", "address_changed": True},
        ),
        (
            "set_notifications",
            {"quiet_from": None, "quiet_until": None},
            {"quiet_from": "22:00:00", "quiet_until": "06:00:00"},
        ),
        (
            "set_notifications",
            {"quiet_from": "22:00:00", "quiet_until": "06:00:00"},
            {"quiet_from": None, "quiet_until": None},
        ),
        ("set_keys", {}, {"approve": "z"}),
        ("set_keys", {"approve": "z"}, {}),
    ]
    assert "a-secret-part" not in str(found)
