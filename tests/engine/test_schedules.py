"""Schedules start runs when they are due: once each, whatever happens to the processes that start them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from retoma import App, Pipeline, hours, minutes
from retoma.client import Client
from retoma.errors import Conflict, DefinitionError, InvalidInput, NotFound
from retoma.outgoing import Guard
from retoma.records import NoStart, PauseReason
from retoma.records import Schedule as Stored
from retoma.schedules import Schedule
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import value

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Report(BaseModel):
    day: str = ""
    since: str = ""


def make_pipeline(name: str = "report") -> Pipeline:
    pipeline = Pipeline(name, Report)

    @pipeline.step
    async def written(day: str) -> str:
        return day

    return pipeline


async def create(sandbox: Sandbox, **options: Any) -> Stored:
    options = {"every": hours(1)} | options
    return await sandbox.client.schedules.create("hourly", "report", **options)


async def start_at(sandbox: Sandbox, **later: float) -> int:
    """Let time pass since noon, and start what is due."""
    await sandbox.clock.set(NOON + timedelta(**later))
    return await sandbox.client.schedules.start_due()


async def list_history(sandbox: Sandbox, schedule: Stored) -> list[tuple[str, str | None, int]]:
    """The due times, oldest first, each with the reason why nothing started."""
    found = await sandbox.client.schedules.list_occurrences(schedule.id)
    return [(each.due_at.strftime("%H:%M"), each.reason, each.count) for each in reversed(found)]


async def test_a_run_starts_when_it_is_due_and_not_before(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox)
        assert await start_at(sandbox, minutes=59) == 0
        assert await start_at(sandbox, minutes=60) == 1
        assert await sandbox.client.schedules.start_due() == 0
        found = await sandbox.client.schedules.get(schedule.id)
        assert found.next_at == NOON + timedelta(hours=2)
        (occurrence,) = await sandbox.client.schedules.list_occurrences(schedule.id)
        assert (occurrence.due_at, occurrence.run) == (NOON + timedelta(hours=1), found.last_run)


async def test_a_cron_rule_is_due_in_its_time_zone(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox, every=None, cron="0 10 * * *", time_zone="America/Sao_Paulo")
        assert schedule.next_at == datetime(2030, 1, 1, 13, tzinfo=UTC)


async def test_inputs_name_the_due_time_and_the_previous_one(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        inputs = {"day": "{{ due_date }} of {{schedule}}", "since": "{{ previous_due_at }}"}
        schedule = await create(sandbox, inputs=inputs, time_zone="America/Sao_Paulo")
        await start_at(sandbox, hours=1)
        await start_at(sandbox, hours=2)
        runs = [each.run for each in await sandbox.client.schedules.list_occurrences(schedule.id)]
        seen = [(await sandbox.client.runs.get(run)).input for run in runs if run]
        assert seen == [
            {"day": "2030-01-01 of hourly", "since": "2030-01-01T10:00:00-03:00"},
            {"day": "2030-01-01 of hourly", "since": "2030-01-01T09:00:00-03:00"},
        ]


async def test_two_processes_that_are_both_about_to_start_a_run_start_one(open_sandbox: OpenSandbox) -> None:
    """The first holds the schedule in an open transaction, and the second passes by."""
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox)
        await sandbox.clock.set(NOON + timedelta(hours=1))
        async with sandbox.database.connection() as connection, connection.transaction():
            await connection.execute("select from retoma.schedules where id = $1 for update", schedule.id)
            assert await sandbox.client.schedules.start_due() == 0
        assert await sandbox.client.schedules.start_due() == 1
        assert await count_runs(sandbox) == 1


async def test_the_latest_due_time_is_caught_up_by_default(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox)
        assert await start_at(sandbox, hours=5, minutes=30) == 1
        assert await list_history(sandbox, schedule) == [("13:00", "missed", 4), ("17:00", None, 1)]


async def test_all_due_times_are_caught_up_to_a_limit(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox, catch_up="all", catch_up_limit=3)
        assert await start_at(sandbox, hours=5, minutes=30) == 3
        assert await list_history(sandbox, schedule) == [
            ("13:00", "missed", 2),
            ("15:00", None, 1),
            ("16:00", None, 1),
            ("17:00", None, 1),
        ]


async def test_nothing_is_caught_up_if_so_declared(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox, catch_up="skip")
        assert await start_at(sandbox, hours=2, minutes=30) == 0
        assert await start_at(sandbox, hours=3, seconds=30) == 1
        assert await list_history(sandbox, schedule) == [("13:00", "missed", 2), ("15:00", None, 1)]


async def test_a_run_that_is_not_over_keeps_the_next_from_starting(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox, overlap="skip")
        assert await start_at(sandbox, hours=1) == 1
        assert await start_at(sandbox, hours=2) == 0
        await sandbox.work()
        assert await start_at(sandbox, hours=3) == 1
        assert await list_history(sandbox, schedule) == [
            ("13:00", None, 1),
            ("14:00", "overlapping", 1),
            ("15:00", None, 1),
        ]


async def test_a_paused_schedule_starts_nothing_and_says_so_when_it_is_resumed(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox)
        await sandbox.client.schedules.pause(schedule.id, by="ana")
        assert await start_at(sandbox, hours=2, minutes=30) == 0
        resumed = await sandbox.client.schedules.resume(schedule.id, by="rui")
        assert (resumed.next_at, resumed.paused_by) == (NOON + timedelta(hours=3), None)
        assert await list_history(sandbox, schedule) == [("13:00", "paused", 2)]


async def test_a_jitter_delays_each_start_by_less_than_itself(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox, jitter=minutes(30))
        delays = set()
        for _ in range(5):
            found = await sandbox.client.schedules.get(schedule.id)
            assert found.next_at is not None
            assert found.starts_at is not None
            delays.add(found.starts_at - found.next_at)
            await sandbox.clock.set(found.starts_at - timedelta(microseconds=1))
            assert await sandbox.client.schedules.start_due() == 0
            await sandbox.clock.set(found.starts_at)
            assert await sandbox.client.schedules.start_due() == 1
        assert len(delays) == 5
        assert all(timedelta(0) <= each < minutes(30) for each in delays)


async def test_inputs_that_the_code_refuses_by_now_are_recorded_and_the_schedule_goes_on(
    open_sandbox: OpenSandbox,
) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox, inputs={"day": "today"})

        class Stricter(BaseModel):
            day: int

        stricter = Pipeline("report", Stricter)

        @stricter.step
        async def written(day: int) -> int:
            return day

        await sandbox.clock.set(NOON + timedelta(hours=1))
        async with open_client(sandbox, App("test", pipelines=[stricter])) as deployed:
            assert await deployed.schedules.start_due() == 0
        (occurrence,) = await sandbox.client.schedules.list_occurrences(schedule.id)
        assert occurrence.reason is NoStart.INVALID_INPUTS
        assert "day" in (occurrence.message or "")
        assert await start_at(sandbox, hours=2) == 1


async def test_a_process_without_the_code_of_the_pipeline_leaves_it_to_others(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await create(sandbox)
        await sandbox.clock.set(NOON + timedelta(hours=1))
        async with open_client(sandbox, App("other", pipelines=[make_pipeline("other")])) as other:
            assert await other.schedules.start_due() == 0
        async with open_client(sandbox, None) as without:
            assert await without.schedules.start_due() == 0
        assert await sandbox.client.schedules.start_due() == 1


async def test_a_trigger_starts_a_run_once_per_key_and_moves_nothing(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox)
        await sandbox.client.schedules.pause(schedule.id)
        first = await sandbox.client.schedules.trigger(schedule.id, key="now", by="ana")
        await sandbox.clock.advance(timedelta(minutes=1))
        again = await sandbox.client.schedules.trigger(schedule.id, key="now", by="ana")
        assert (first.created, again.created, again.id) == (True, False, first.id)
        assert (await sandbox.client.schedules.trigger(schedule.id)).id != first.id
        found = await sandbox.client.schedules.get(schedule.id)
        assert (found.next_at, found.last_due_at) == (schedule.next_at, None)
        history = await sandbox.client.schedules.list_occurrences(schedule.id)
        assert [each.triggered_by for each in history] == ["client", "ana"]


async def test_a_new_rule_counts_from_now_and_other_changes_keep_the_due_time(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox)
        await sandbox.clock.advance(timedelta(minutes=30))
        titled = await sandbox.client.schedules.update(schedule.id, title="Hourly report")
        assert (titled.next_at, titled.title) == (schedule.next_at, "Hourly report")
        moved = await sandbox.client.schedules.update(schedule.id, every=minutes(10))
        assert (moved.next_at, moved.revision) == (NOON + timedelta(minutes=40), 3)
        with pytest.raises(Conflict, match="changed since"):
            await sandbox.client.schedules.update(schedule.id, title="Late", revision=2)


async def test_the_history_is_bounded(open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retoma.store.schedules.KEPT_OCCURRENCES", 3)
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox)
        for hour in range(1, 6):
            await start_at(sandbox, hours=hour)
        assert [due for due, _, _ in await list_history(sandbox, schedule)] == ["15:00", "16:00", "17:00"]


async def test_a_deleted_schedule_leaves_its_runs(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox)
        await start_at(sandbox, hours=1)
        await sandbox.client.schedules.delete(schedule.id)
        assert await count_runs(sandbox) == 1
        with pytest.raises(NotFound):
            await sandbox.client.schedules.get(schedule.id)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cron": "0 3 * * *"}, "either a cron rule or an interval"),
        ({"every": None}, "either a cron rule or an interval"),
        ({"time_zone": "Europe/Lisboa"}, "did you mean 'Europe/Lisbon'"),
        ({"inputs": {"day": "{{ due_dat }}"}}, "did you mean 'due_date'"),
        ({"inputs": {"day": 7}}, "day"),
        ({"jitter": hours(2)}, "shorter than the interval"),
        ({"catch_up": "lates"}, "did you mean 'latest'"),
        ({"catch_up": "all", "catch_up_limit": 0}, "catch_up_limit"),
        ({"overlap": "never"}, "overlap policy"),
        ({"title": "x" * 201}, "title"),
    ],
)
async def test_a_mistake_is_refused_when_a_schedule_is_saved(
    open_sandbox: OpenSandbox, options: dict[str, Any], message: str
) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        with pytest.raises(InvalidInput, match=message):
            await create(sandbox, **options)
        assert await sandbox.client.schedules.list() == []


async def test_a_name_is_taken_once_per_tenant(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await create(sandbox)
        await create(sandbox, tenant="blog")
        with pytest.raises(Conflict, match="already has a schedule"):
            await create(sandbox)
        with pytest.raises(NotFound, match="did you mean 'hourly'"):
            await sandbox.client.schedules.find("hourli")
        await sandbox.client.start("report")
        with pytest.raises(NotFound, match="did you mean 'report'"):
            await sandbox.client.schedules.create("other", "raport", every=hours(1))


async def test_a_client_of_one_tenant_neither_sees_nor_changes_other_schedules(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        schedule = await create(sandbox, tenant="blog")
        limited = sandbox.client.limit_to(["shop"])
        assert await limited.schedules.list() == []
        for act in (limited.schedules.pause, limited.schedules.trigger, limited.schedules.delete):
            with pytest.raises(NotFound):
                await act(schedule.id)


async def test_previews_name_the_next_times(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        found = await sandbox.client.schedules.preview(cron="0 3 * * 1", time_zone="Europe/Lisbon", limit=2)
        assert found == [datetime(2030, 1, 7, 3, tzinfo=UTC), datetime(2030, 1, 14, 3, tzinfo=UTC)]


# Schedules that the code declares.


def declare(*schedules: Schedule, name: str = "news") -> App:
    return App(name, pipelines=[make_pipeline()], schedules=schedules)


NIGHTLY = Schedule("nightly", "report", cron="0 3 * * *", inputs={"day": "{{ due_date }}"})


async def test_declared_schedules_are_saved_and_unchanged_ones_keep_their_due_time(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox, open_client(sandbox, declare(NIGHTLY)) as client:
        (saved,) = await client.schedules.declare()
        assert (saved.declared_by, saved.application, saved.next_at) == (
            "code",
            "news",
            datetime(2030, 1, 2, 3, tzinfo=UTC),
        )
        assert await client.schedules.declare() == []
        with pytest.raises(Conflict, match="in the code"):
            await client.schedules.update(saved.id, title="Mine")
        with pytest.raises(Conflict, match="in the code"):
            await client.schedules.delete(saved.id)


async def test_a_schedule_that_left_the_code_is_paused_until_it_returns(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        async with open_client(sandbox, declare(NIGHTLY)) as client:
            (saved,) = await client.schedules.declare()
        async with open_client(sandbox, declare()) as client:
            (paused,) = await client.schedules.declare()
            assert paused.pause_reason is PauseReason.REMOVED
            with pytest.raises(Conflict, match="no longer declares"):
                await client.schedules.resume(saved.id)
        async with open_client(sandbox, declare(NIGHTLY)) as client:
            (back,) = await client.schedules.declare()
            assert (back.id, back.is_paused) == (saved.id, False)


async def test_a_pause_by_a_person_outlives_a_deployment(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        async with open_client(sandbox, declare(NIGHTLY)) as client:
            (saved,) = await client.schedules.declare()
            await client.schedules.pause(saved.id, by="ana")
        for schedules in ((Schedule("nightly", "report", cron="0 4 * * *"),), (), (NIGHTLY,)):
            async with open_client(sandbox, declare(*schedules)) as client:
                await client.schedules.declare()
                assert (await client.schedules.get(saved.id)).paused_by == "ana"


async def test_the_code_does_not_take_over_a_schedule_of_the_api(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        mine = await sandbox.client.schedules.create("nightly", "report", every=hours(1))
        async with open_client(sandbox, declare(NIGHTLY)) as client:
            assert await client.schedules.declare() == []
        assert await sandbox.client.schedules.get(mine.id) == mine


@pytest.mark.parametrize(
    ("schedules", "message"),
    [
        ([Schedule("nightly", "raport", every=60)], "schedule 'nightly'.*did you mean 'report'"),
        ([Schedule("nightly", "report", cron="0 25 * * *")], "schedule 'nightly'.*cron rule"),
        ([Schedule("nightly", "report", every=60, inputs={"day": "{{ due_dates }}"})], "did you mean 'due_date'"),
        ([Schedule("nightly", "report", every=60, inputs={"day": 3})], "schedule 'nightly'.*day"),
        ([NIGHTLY, NIGHTLY], "two schedules named 'nightly'"),
        ([Schedule("a/b", "report", every=60)], "without '/'"),
    ],
)
def test_a_wrong_declaration_fails_at_import(schedules: list[Schedule], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        declare(*schedules)


@asynccontextmanager
async def open_client(sandbox: Sandbox, app: App | None) -> AsyncIterator[Client]:
    """Another process on the same database, with other code."""
    client = Client(app, sandbox.database, Guard())
    try:
        yield client
    finally:
        await client.close()


async def count_runs(sandbox: Sandbox) -> int:
    return int(await value(sandbox, "select count(*) from retoma.runs"))
