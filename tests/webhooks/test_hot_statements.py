"""Taking up webhooks goes by the index of open ones, however many were sent, wait for later, or belong to one host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest

from retoma import Webhook
from retoma.define.webhook import EVENTS, encode_webhook
from retoma.store.database import Database
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import find_claim, rows
from tests.engine.test_hot_statements import call, clear, counters, make_result, prepare_history
from tests.webhooks.builders import one_step

HISTORY = 6_000
FEW = 150
Statistics = Literal["of now", "none", "of one row", "the size alone, of one row"]
STATISTICS: list[Statistics] = ["of now", "none", "of one row", "the size alone, of one row"]
RECORD = "select * from retoma.record_delivery_attempt($1, $2, 'delivered', '0', null, 5, 200, null, 'thanks')"
CLAIM = "select * from retoma.claim_deliveries('{one}', 50, 8, '30 seconds')"


@pytest.mark.parametrize("statistics", STATISTICS)
async def test_a_claim_reads_only_what_is_due(open_sandbox: OpenSandbox, statistics: Statistics) -> None:
    async with open_sandbox(one_step()) as sandbox:
        await make_history(sandbox, statistics)
        hook = Webhook("https://new.example.com/", events=["run.started"])
        await sandbox.client.start_many("one", [None] * 3, webhook=hook)
        async with sandbox.database.connection() as connection, connection.transaction():
            before = await counters(connection)
            taken = await connection.fetch(CLAIM)
            read = {name: count - before.get(name, 0) for name, count in (await counters(connection)).items()}
    assert len(taken) == 8 + 3
    assert read["r", "deliveries"] == read["r", "endpoints"] == 0
    assert 0 < sum(count for (kind, _), count in read.items() if kind == "i") <= FEW


@pytest.mark.parametrize("statistics", STATISTICS)
async def test_recording_an_attempt_reads_only_deliveries_of_its_run_and_endpoint(
    open_sandbox: OpenSandbox, statistics: Statistics
) -> None:
    async with open_sandbox(one_step()) as sandbox:
        await make_history(sandbox, statistics)
        hook = Webhook("https://new.example.com/", events=["run.started"])
        await sandbox.client.start("one", webhook=hook)
        async with sandbox.database.connection() as connection, connection.transaction():
            (taken,) = [row for row in await connection.fetch(CLAIM) if row["url"] == hook.url]
            before = await counters(connection)
            recorded = await connection.fetchrow(RECORD, taken["id"], taken["attempt"])
            read = {name: count - before.get(name, 0) for name, count in (await counters(connection)).items()}
    assert recorded is not None
    assert recorded["state"] == "delivered"
    whole = {name for (kind, name), count in read.items() if kind == "r" and count}
    assert whole <= {"clock"}
    assert 0 < sum(count for (kind, _), count in read.items() if kind == "i") <= FEW


async def test_the_end_of_a_run_without_a_webhook_reads_no_delivery(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        await make_history(sandbox)
        run = (await sandbox.client.start("one")).id
        async with sandbox.database.connection() as connection, connection.transaction():
            before = await counters(connection)
            await connection.fetch("select retoma.cancel_run($1, null, 'test')", run)
            read = {name: count - before.get(name, 0) for name, count in (await counters(connection)).items()}
    touched = {name for (_, name), count in read.items() if count}
    assert not any(name.startswith(("deliveries", "hooks", "endpoints", "one_place")) for name in touched)


async def test_a_start_with_a_webhook_reads_nothing_of_other_runs(open_sandbox: OpenSandbox) -> None:
    hook = encode_webhook(Webhook("https://old.example.com/", events=["run.started"]), "https://old.example.com")
    async with open_sandbox(one_step()) as sandbox:
        await make_history(sandbox)
        (run, *_) = [started.id for started in await sandbox.client.start_many("one", [None] * 1_000)]
        (tenant,) = (await rows(sandbox, "select tenant from retoma.runs where id = $1", run))[0]
        async with sandbox.database.connection() as connection, connection.transaction():
            before = await counters(connection)
            await connection.fetch(
                "select retoma.add_run_webhooks(retoma.now(), array[$1::uuid], array[$2::int], array[$3::json])",
                run,
                tenant,
                hook,
            )
            assert await connection.fetchval("select count(*) from retoma.deliveries where run = $1", run) == 1
            read = {name: count - before.get(name, 0) for name, count in (await counters(connection)).items()}
    whole = {name for (kind, name), count in read.items() if kind == "r" and count}
    assert whole <= {"clock", "versions"}
    assert 0 < sum(count for (kind, _), count in read.items() if kind == "i") <= FEW


async def test_a_subscription_costs_a_job_nothing(open_sandbox: OpenSandbox, database: Database) -> None:
    without, subscribed = [await read_by_jobs(open_sandbox, database, events) for events in ([], list(EVENTS))]
    assert subscribed == without
    assert not any(
        name.startswith(("pending_webhook_events", "deliveries", "endpoints", "run_webhooks")) for _, name in subscribed
    )


async def read_by_jobs(open_sandbox: OpenSandbox, database: Database, events: list[str]) -> dict[tuple[str, str], int]:
    """Return what claiming and finishing jobs of an open run reads while a URL has subscribed to `events`."""
    async with (
        hold_snapshot(database),
        prepare_history(open_sandbox, "analysed") as (sandbox, channel, connection),
    ):
        if events:
            await sandbox.client.webhooks.subscribe("http://127.0.0.1:9/hook", events)
        await sandbox.client.start("labels")
        before = await counters(connection)
        claims = await call(connection, channel, limit=10)
        await call(
            connection,
            channel,
            [make_result(find_claim(claims, "taxonomy")), make_result(find_claim(claims, "documents"))],
        )
        after = await counters(connection)
    return {name: count - before[name] for name, count in after.items() if count > before[name]}


@asynccontextmanager
async def hold_snapshot(database: Database) -> AsyncIterator[None]:
    """Keep every index entry, also those of rows that were changed meanwhile.

    A scan skips such an entry once no transaction of this database can see its row. Without this, one that happens to
    be open, such as that of an automatic `analyze`, decides whether the jobs of the history's cancelled run are read.
    """
    connection = await database.connect()
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetch("select")
            yield
    finally:
        await connection.close()


async def make_history(sandbox: Sandbox, statistics: Statistics = "of now") -> None:
    """Webhooks that were delivered, that wait for later, for others of their run, and a thousand due to one host."""
    await clear(sandbox)
    hook = Webhook("https://old.example.com/", events=["run.started"])
    await sandbox.client.start("one", webhook=hook)
    if statistics == "of one row":
        await rows(sandbox, "analyze retoma.deliveries, retoma.endpoints")
    if statistics == "the size alone, of one row":
        async with sandbox.database.connection() as connection:
            await connection.execute("vacuum retoma.deliveries")
    await rows(
        sandbox,
        """
        insert into retoma.deliveries (run, endpoint, seq, tenant, pipeline, host, event, schedule, state, next_at,
                                       created_at, ended_at)
        select gen_random_uuid(), endpoint, 1, tenant, pipeline, host, event, schedule,
               case when n % 6 > 2 then 'delivered' else 'due' end::retoma.delivery_state,
               case n % 6 when 0 then 'infinity' when 1 then retoma.now() + interval '1 hour'
                    else retoma.now() end,
               created_at, case when n % 6 > 2 then created_at end
          from retoma.deliveries, generate_series(1, $1::int) as n
        """,
        HISTORY,
    )
    if statistics == "of now":
        await rows(sandbox, "analyze retoma.deliveries, retoma.endpoints")
