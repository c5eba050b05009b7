"""Claims while a transaction stays open, so jobs claimed since then cannot be vacuumed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from retoma.store.database import Connection
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import RawChannel, open_channel, rows, value
from tests.engine.test_hot_statements import FEW, call, clear, labels, measure_reads

CLAIMED_BEFORE = 21_000
OLD_READY_JOBS = """
insert into retoma.jobs (run, rank, version, tenant, revision, state, step, item, queue, created_at)
select r.id, retoma.start_of_round($3::int) + 1, r.version, r.tenant, 1, 'ready', 'documents', n::text, 'default', now()
  from retoma.runs r, generate_series($1::int, $2::int) n where r.id = (select min(id::text)::uuid from retoma.runs)
"""


@asynccontextmanager
async def open_with_long_transaction(
    open_sandbox: OpenSandbox, number: int = 0
) -> AsyncIterator[tuple[Sandbox, RawChannel, Connection]]:
    """Many jobs of this round of one old run that are no longer ready, whose index entries must remain."""
    async with open_sandbox(labels()) as sandbox:
        await clear(sandbox)
        first = (await sandbox.client.start("labels")).id
        holder, connection = await sandbox.database.connect(), await sandbox.database.connect()
        async with holder.transaction(isolation="repeatable_read"):
            await holder.fetch("select count(*) from retoma.runs")
            await rows(sandbox, OLD_READY_JOBS, 1, CLAIMED_BEFORE, number)
            await rows(
                sandbox,
                "update retoma.jobs set state = 'cancelled', worker = 0, ended_at = now() where run = $1",
                first,
            )
            async with connection.transaction():
                yield sandbox, await open_channel(sandbox), connection
        await connection.close()
        await holder.close()
        await clear(sandbox)


async def schedule_full_scan(connection: Connection, channel: RawChannel, when: str) -> None:
    """Set the time of the next planned full scan."""
    done = await connection.execute(
        "update retoma.worker_links set rescan_at = clock_timestamp() + $2::text::interval"
        " where worker = $1 and rescan_at is not null",
        channel.worker,
        when,
    )
    assert done == "UPDATE 1", "no look-back is planned: every claim reads everything"


@pytest.mark.parametrize("number", [0, 3])
async def test_claims_do_not_repeatedly_read_jobs_claimed_before(open_sandbox: OpenSandbox, number: int) -> None:
    async with open_with_long_transaction(open_sandbox, number) as (sandbox, channel, connection):
        async with measure_reads(connection) as first:
            assert await call(connection, channel, limit=10) == []
        assert first.entries["jobs_ready_by_queue"] >= CLAIMED_BEFORE
        await call(connection, channel, limit=10)
        await schedule_full_scan(connection, channel, "1 hour")
        await sandbox.client.start("labels")
        async with measure_reads(connection) as read:
            assert len(await call(connection, channel, limit=10)) == 2
        assert read.entries["jobs_ready_by_queue"] <= FEW


@pytest.mark.parametrize("number", [0, 3])
async def test_jobs_of_earlier_runs_are_claimed_at_the_next_full_scan(open_sandbox: OpenSandbox, number: int) -> None:
    async with open_with_long_transaction(open_sandbox, number) as (sandbox, channel, connection):
        await call(connection, channel, limit=10)
        await call(connection, channel, limit=10)
        await schedule_full_scan(connection, channel, "1 hour")
        await rows(sandbox, OLD_READY_JOBS, 30_001, 30_012, number)
        assert await call(connection, channel, limit=5) == []
        await schedule_full_scan(connection, channel, "-1 second")
        assert len(await call(connection, channel, limit=5)) == 5
        await schedule_full_scan(connection, channel, "1 hour")
        assert len(await call(connection, channel, limit=5)) == 5, "what is left of them is in reach"


async def test_claims_read_everything_again_once_there_is_little_to_read(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(labels()) as sandbox:
        channel = await open_channel(sandbox)
        await rows(
            sandbox, "update retoma.worker_links set rescan_at = clock_timestamp() where worker = $1", channel.worker
        )
        await channel.call(limit=1)
        assert (
            await value(sandbox, "select rescan_at from retoma.worker_links where worker = $1", channel.worker) is None
        )


async def test_a_worker_link_resets_its_key_periodically(open_sandbox: OpenSandbox) -> None:
    """All versions of a row under one key are read again by every call."""
    async with open_sandbox(labels()) as sandbox:
        channel = await open_channel(sandbox)
        for _ in range(3):
            await channel.call()
        await rows(sandbox, "update retoma.worker_links set call_number = 999 where worker = $1", channel.worker)
        channel.link._call = 999
        await channel.call()
        assert await value(sandbox, "select call_block from retoma.worker_links where worker = $1", channel.worker) == 1
        await channel.call()
        assert (
            await value(sandbox, "select call_number from retoma.worker_links where worker = $1", channel.worker)
            == 1001
        )
