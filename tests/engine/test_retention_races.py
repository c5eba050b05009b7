"""Removing a run while somebody uses it: one of the two waits or is skipped, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from retoma.engine.retention import remove_due
from retoma.errors import NotFound, RunRemoved
from retoma.settings import RetentionTimes
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import rows, value
from tests.engine.test_retention import build_pipeline, exists

DAY = timedelta(days=1)


@asynccontextmanager
async def open_removal(sandbox: Sandbox, run: UUID) -> AsyncIterator[asyncpg.Connection]:
    """A transaction that has removed the run and commits when the block ends."""
    connection = await sandbox.database.connect()
    try:
        async with connection.transaction():
            assert await connection.fetchval("select retoma.remove_runs(array[$1::uuid], 'expired')", run) == [run]
            yield connection
    finally:
        await connection.close()


async def wait_until_blocked(connection: asyncpg.Connection, task: asyncio.Task[Any]) -> None:
    """Return when another connection waits for a lock of this one."""
    async with asyncio.timeout(10):
        while not await connection.fetchval(
            "select exists (select from pg_stat_activity where pg_backend_pid() = any (pg_blocking_pids(pid)))"
        ):
            assert not task.done()


async def test_a_hold_that_waits_for_a_removal_finds_no_run(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.run("order")).id
        async with open_removal(sandbox, run) as removing:
            holding = asyncio.create_task(sandbox.client.retention.hold(run, "a dispute"))
            await wait_until_blocked(removing, holding)
        with pytest.raises(NotFound):
            await holding
        assert await value(sandbox, "select count(*) from retoma.run_holds") == 0


async def test_a_run_that_is_being_held_is_skipped(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.run("order")).id
        await sandbox.clock.advance(91 * DAY)
        connection = await sandbox.database.connect()
        async with connection.transaction():
            await connection.execute("select retoma.hold_run($1, null, 'Ana', 'a dispute')", run)
            assert await remove_due(sandbox.database, RetentionTimes(), at_once=True) == 0
        await connection.close()
        assert await remove_due(sandbox.database, RetentionTimes(), at_once=True) == 0
        assert await exists(sandbox, run)


@pytest.mark.parametrize("action", ["rerun", "fork"])
async def test_an_action_that_waits_for_a_removal_finds_no_run(open_sandbox: OpenSandbox, action: str) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.run("order")).id
        calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "rerun": lambda: sandbox.client.runs.rerun(run, "checked"),
            "fork": lambda: sandbox.client.runs.fork(run, {"names": ["z"]}),
        }
        async with open_removal(sandbox, run) as removing:
            acting = asyncio.create_task(calls[action]())
            await wait_until_blocked(removing, acting)
        with pytest.raises(NotFound):
            await acting
        for table in ("runs", "jobs", "events", "action_keys"):
            assert await value(sandbox, f"select count(*) from retoma.{table}") == 0


async def test_a_run_that_is_being_rerun_is_skipped(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.run("order")).id
        await sandbox.clock.advance(91 * DAY)
        connection = await sandbox.database.connect()
        async with connection.transaction():
            await connection.execute("select retoma.begin_action($1, null, '{}')", run)
            assert await remove_due(sandbox.database, RetentionTimes(), at_once=True) == 0
        await connection.close()
        assert await remove_due(sandbox.database, RetentionTimes(), at_once=True) == 1


async def test_a_start_with_the_key_of_a_run_that_is_being_removed_starts_nothing(open_sandbox: OpenSandbox) -> None:
    """Before the removal it finds the run; afterwards it learns that the run was removed. It never starts another."""
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.client.start("order", key="once")).id
        await sandbox.work()
        async with open_removal(sandbox, run):
            again = await sandbox.client.start("order", key="once")
            assert (again.id, again.created) == (run, False)
        with pytest.raises(RunRemoved):
            await sandbox.client.start("order", key="once")


async def test_two_processes_never_remove_at_the_same_time(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        await sandbox.run("order")
        await sandbox.clock.advance(91 * DAY)
        first = await sandbox.database.connect()
        call = "select * from retoma.remove_expired_runs('90 days', '1 year', 100, 1000, '0')"
        async with first.transaction():
            (removing,) = await first.fetch(call)
            assert removing["o_removed"] == 1
            (second,) = await rows(sandbox, call)
            assert (second["o_state"], second["o_removed"]) == ("busy", 0)
        await first.close()


async def test_workers_claim_and_finish_while_a_removal_is_open(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.run("order")).id
        async with open_removal(sandbox, run), asyncio.timeout(10):
            assert (await sandbox.run("order")).state == "completed"
