"""Events: append-only facts, each written together with its change."""

from __future__ import annotations

import asyncpg
import pytest

from retoma import Context, GiveUp, Items, Pipeline, Retry
from retoma.engine.outcomes import Success
from tests.conftest import OpenSandbox
from tests.engine.builders import kinds, open_channel, rows, run_next, value


async def test_the_events_of_a_run_record_its_history(open_sandbox: OpenSandbox) -> None:
    pipeline = make_story()
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        reported = await kinds(sandbox, run.id)
    assert reported[:2] == ["start", "result numbers"]
    assert sorted(reported[2:5]) == ["failure square:2", "result square:3", "retry square:1"]
    assert reported[5:] == ["result square:1", "result total", "end"]


async def test_an_event_records_its_time_attempt_and_worker(open_sandbox: OpenSandbox) -> None:
    pipeline = make_story()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "numbers")
        start, result = await sandbox.client.runs.list_events(run)
        now = await sandbox.clock.now()
        assert (start.at, start.revision, start.attempt, start.worker, start.step) == (now, 1, None, None, None)
        assert (result.at, result.revision, result.attempt, result.worker) == (now, 1, 1, worker.worker)
        assert (result.step, result.item) == ("numbers", "")


async def test_failure_and_end_events_record_cause_and_state(open_sandbox: OpenSandbox) -> None:
    pipeline = make_story()
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        events = await sandbox.client.runs.list_events(run.id)
    (failure,) = (event for event in events if event.kind == "failure")
    assert (failure.data["code"], failure.data["type"], failure.data["message"]) == ("EVEN", "GiveUp", "two is even")
    assert events[-1].data == {"state": "completed_with_errors"}


async def test_events_can_be_read_from_the_last_one_seen(open_sandbox: OpenSandbox) -> None:
    pipeline = make_story()
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        every = await sandbox.client.runs.list_events(run.id)
        first = await sandbox.client.runs.list_events(run.id, limit=3)
        assert first == every[:3]
        assert await sandbox.client.runs.list_events(run.id, after=first[-1].id) == every[3:]


async def test_an_event_cannot_be_changed(open_sandbox: OpenSandbox) -> None:
    pipeline = make_story()
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        with pytest.raises(asyncpg.CheckViolationError, match="events are immutable"):
            await value(sandbox, "update retoma.events set kind = 'end' where run = $1 returning 1", run.id)


async def test_only_known_kinds_of_events_can_be_written(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_story()) as sandbox:
        with pytest.raises(asyncpg.CheckViolationError, match="kind_is_known"):
            await rows(
                sandbox,
                "insert into retoma.events (run, at, revision, kind) values (gen_random_uuid(), now(), 1, 'rumour')",
            )


async def test_a_failed_call_writes_no_event(open_sandbox: OpenSandbox) -> None:
    pipeline = make_story()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        channel = await open_channel(sandbox)
        (claim,) = await channel.call(limit=1)
        with pytest.raises(Exception, match="json"):
            await channel.call([Success(claim, "this is no json")])
        assert await kinds(sandbox, run) == ["start"]
        await channel.call([Success(claim, "[]")])
        assert await kinds(sandbox, run) == ["start", "result numbers"]


async def test_a_claim_writes_no_event(open_sandbox: OpenSandbox) -> None:
    pipeline = make_story()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await worker.claim()
        assert await kinds(sandbox, run) == ["start"]


def make_story() -> Pipeline:
    """One item succeeds after a retry, one fails for good, one succeeds at once."""
    pipeline = Pipeline("story")

    @pipeline.step
    async def numbers() -> list[int]:
        return [1, 2, 3]

    @pipeline.each(numbers, retry=Retry(1, delays=[10]))
    async def square(number: int, *, ctx: Context) -> int:
        if number == 1 and ctx.attempt == 1:
            raise OSError("not yet")
        if number == 2:
            raise GiveUp("two is even", code="EVEN")
        return number * number

    @pipeline.step
    async def total(square: Items[int]) -> int:
        return sum(square)

    return pipeline
