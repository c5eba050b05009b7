"""Several processes fire schedules, people change them, and processes crash: each due time starts one run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from retoma import Pipeline, hours
from retoma.client import Client
from retoma.client.schedule_starts import fire
from retoma.outgoing import Guard
from retoma.records import Schedule
from retoma.store.database import Connection, Database, Row
from retoma.store.statements import Statement
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import value

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SERVERS = 6


class Report(BaseModel):
    day: str = ""


def make_pipeline() -> Pipeline:
    pipeline = Pipeline("report", Report)

    @pipeline.step
    async def written(day: str) -> str:
        return day

    return pipeline


async def create_due(sandbox: Sandbox, **options: Any) -> Schedule:
    """A schedule that is due now, as a process has read it."""
    schedule = await sandbox.client.schedules.create("hourly", "report", every=hours(1), **options)
    await sandbox.clock.set(NOON + timedelta(hours=1))
    return schedule


async def count_runs(sandbox: Sandbox) -> int:
    return int(await value(sandbox, "select count(*) from retoma.runs"))


async def test_many_servers_that_fire_at_once_start_each_run_once(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        for number in range(5):
            await sandbox.client.schedules.create(f"s{number}", "report", every=hours(1), catch_up="all")
        servers = [Client(sandbox.app, sandbox.database, Guard()) for _ in range(SERVERS)]
        await sandbox.clock.set(NOON + timedelta(hours=4, minutes=30))
        started = await asyncio.gather(*(server.schedules.start_due() for server in servers))
        # A server that meets the row of another passes by, and looks again a second later.
        started.append(await sandbox.client.schedules.start_due())
        assert (sum(started), await count_runs(sandbox)) == (20, 20)
        assert await value(sandbox, "select count(*) from retoma.schedule_occurrences") == 20
        for server in servers:
            await server.close()


async def test_two_servers_that_have_both_read_a_due_schedule_start_one_run(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create_due(sandbox)
        first = await fire(sandbox.client._core, schedule)
        assert first is not None
        assert first.run is not None
        assert await fire(sandbox.client._core, schedule) is None
        assert await count_runs(sandbox) == 1


@pytest.mark.parametrize("change", ["pause", "update", "delete"])
async def test_nothing_starts_by_a_schedule_that_has_changed_since_it_was_read(
    open_sandbox: OpenSandbox, change: str
) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create_due(sandbox)
        changes: dict[str, Callable[[], Awaitable[Any]]] = {
            "pause": lambda: sandbox.client.schedules.pause(schedule.id),
            "update": lambda: sandbox.client.schedules.update(schedule.id, inputs={"day": "new"}),
            "delete": lambda: sandbox.client.schedules.delete(schedule.id),
        }
        await changes[change]()
        assert await fire(sandbox.client._core, schedule) is None
        assert await count_runs(sandbox) == 0


async def test_a_pause_waits_for_a_start_in_progress_and_keeps_its_run(open_sandbox: OpenSandbox) -> None:
    """The start holds the schedule until its commit; the pause comes after it."""
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create_due(sandbox)
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def wait(connection: Connection, rows: list[Row]) -> None:
            reached.set()
            await go_on.wait()

        firing = asyncio.create_task(fire(make_core(sandbox, wait), schedule))
        await reached.wait()
        pausing = asyncio.create_task(sandbox.client.schedules.pause(schedule.id))
        assert not (await asyncio.wait([pausing], timeout=0.1))[0]
        go_on.set()
        fired, paused = await asyncio.gather(firing, pausing)
        assert fired is not None
        assert (paused.last_run, paused.is_paused, paused.next_at) == (fired.run, True, NOON + timedelta(hours=2))


async def test_a_rule_changed_while_its_run_starts_is_due_by_the_new_rule(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create_due(sandbox)
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def wait(connection: Connection, rows: list[Row]) -> None:
            reached.set()
            await go_on.wait()

        firing = asyncio.create_task(fire(make_core(sandbox, wait), schedule))
        await reached.wait()
        changing = asyncio.create_task(sandbox.client.schedules.update(schedule.id, cron="0 3 * * *"))
        assert not (await asyncio.wait([changing], timeout=0.1))[0]
        go_on.set()
        fired, changed = await asyncio.gather(firing, changing)
        assert fired is not None
        assert changed.next_at == datetime(2030, 1, 2, 3, tzinfo=UTC)
        assert await sandbox.client.schedules.start_due() == 0
        assert await count_runs(sandbox) == 1


async def test_a_crash_after_the_start_and_before_the_commit_starts_nothing(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create_due(sandbox)

        async def crash(connection: Connection, rows: list[Row]) -> None:
            assert rows[0]["run"] is not None
            raise Crash

        with pytest.raises(Crash):
            await fire(make_core(sandbox, crash), schedule)
        assert await count_runs(sandbox) == 0
        assert await sandbox.client.schedules.start_due() == 1
        assert await count_runs(sandbox) == 1


async def test_a_start_whose_answer_is_lost_is_made_once(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create_due(sandbox)
        lost = lose_first_answer(monkeypatch)
        await fire(sandbox.client._core, schedule)
        assert lost == ["lost"]
        assert await sandbox.client.schedules.start_due() == 0
        assert await count_runs(sandbox) == 1
        (occurrence,) = await sandbox.client.schedules.list_occurrences(schedule.id)
        assert occurrence.run is not None


async def test_a_trigger_whose_answer_is_lost_is_recorded_once(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create_due(sandbox)
        start = sandbox.client.schedules.trigger
        await sandbox.client.now()
        lost = lose_first_answer(monkeypatch, "trigger_schedule")
        started = await start(schedule.id)
        assert lost == ["lost"]
        (occurrence,) = await sandbox.client.schedules.list_occurrences(schedule.id)
        assert (occurrence.run, await count_runs(sandbox)) == (started.id, 1)


async def test_a_due_time_that_comes_back_starts_no_second_run(open_sandbox: OpenSandbox) -> None:
    """A change that was computed before a start may set the due time back to it: the key of the run holds."""
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create_due(sandbox)
        assert await sandbox.client.schedules.start_due() == 1
        async with sandbox.database.connection() as connection:
            await connection.execute(
                "update retoma.schedules set next_at = $2, starts_at = $2 where id = $1", schedule.id, schedule.next_at
            )
        await sandbox.client.schedules.start_due()
        assert await count_runs(sandbox) == 1
        assert len(await sandbox.client.schedules.list_occurrences(schedule.id)) == 1


class Crash(Exception):
    """In place of the death of the process."""


class After:
    """What happens in the transaction that fires a schedule, after its statement."""

    def __init__(self, act: Callable[[Connection, list[Row]], Awaitable[None]]) -> None:
        self._act = act

    async def write(self, connection: Connection, rows: list[Row]) -> None:
        await self._act(connection, rows)

    def belongs_to(self, statement: Statement) -> bool:
        return statement.name == "fire_schedule"


def make_core(sandbox: Sandbox, act: Callable[[Connection, list[Row]], Awaitable[None]]) -> Any:
    """The core of another process, in whose transaction this happens after the start."""
    core = Client(sandbox.app, sandbox.database, Guard())._core
    core.database = sandbox.database.recording(After(act))
    return core


def lose_first_answer(monkeypatch: pytest.MonkeyPatch, name: str = "fire_schedule") -> list[str]:
    """Cut the connection after the first commit of this statement, and repeat it later. Return what was lost."""
    lost: list[str] = []
    current: list[str] = []
    fetch, run = Database.fetch, Database._run_or_drop

    async def fetch_by_name(self: Database, statement: Statement, **values: Any) -> Any:
        current[:] = [statement.name]
        return await fetch(self, statement, **values)

    async def run_and_lose(self: Database, connection: Connection, call: Callable[[Connection], Awaitable[Any]]) -> Any:
        answer = await run(self, connection, call)
        if not lost and current == [name]:
            lost.append("lost")
            await connection.execute("update retoma.clock set at = at + interval '1 second'")
            raise ConnectionResetError("cut after the commit")
        return answer

    monkeypatch.setattr(Database, "fetch", fetch_by_name)
    monkeypatch.setattr(Database, "_run_or_drop", run_and_lose)
    return lost
