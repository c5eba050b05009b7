"""Starting runs: later, once per key, in batches, and again after a lost answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from pydantic import BaseModel

from retoma import Client, Pipeline
from retoma.engine.run_starter import RunStarter, StartedRun, StartRequest
from retoma.engine.versions import register
from retoma.errors import Conflict, RunRemoved
from retoma.identifiers import new_run_id
from retoma.store.statements import statements
from retoma.store.tenants import Tenants
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import kinds, lose_answer, rows, run_next, state, states, value
from tests.engine.test_races import is_blocked, wait_until


class Brief(BaseModel):
    topic: str = "tea"
    words: int = 100


async def test_a_returned_start_is_committed(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        started = await sandbox.client.start(pipeline, {"topic": "coffee"}, tenant="blog")
        run = await sandbox.client.runs.get(started.id)
        assert started.created
        assert (run.state, run.tenant, run.pipeline, run.revision) == ("running", "blog", "article", 1)
        assert run.input == {"topic": "coffee", "words": 100}
        assert await states(sandbox, run.id) == {"outline": "ready"}


async def test_run_ids_are_in_order_of_creation(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        ids = [(await sandbox.client.start(pipeline)).id for _ in range(5)]
    assert {one.version for one in ids} == {7}
    assert ids == sorted(ids)


async def test_a_scheduled_run_is_pending_until_it_is_due(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        at = await sandbox.clock.now() + timedelta(hours=1)
        run = (await sandbox.client.start(pipeline, run_at=at)).id
        await sandbox.clock.advance(timedelta(minutes=59))
        assert await sandbox.work(advance_clock=False) == 0
        assert await state(sandbox, run) == "pending"
        assert (await sandbox.client.runs.get(run)).run_at == at


async def test_a_run_that_is_due_is_running(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline, run_at=await sandbox.clock.now() + timedelta(hours=1))).id
        assert await worker.claim(10) == []
        assert await release_after(sandbox, timedelta(hours=1)) == 1
        assert await state(sandbox, run) == "running"
        await run_next(worker, "outline")


async def test_a_run_scheduled_in_the_past_starts_now(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        now = await sandbox.clock.now()
        run = await sandbox.run(pipeline, run_at=now - timedelta(days=3))
        assert (await sandbox.client.runs.get(run.id)).run_at == now
    assert run.state == "completed"


async def test_the_same_key_and_input_return_the_same_run_in_any_state(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        first = await sandbox.client.start(pipeline, {"topic": "tea"}, key="monday")
        again = await sandbox.client.start(pipeline, {"words": 100, "topic": "tea"}, key="monday")
        await sandbox.client.runs.cancel(first.id)
        once_more = await sandbox.client.start(pipeline, {"topic": "tea"}, key="monday")
        assert [first.created, again.created, once_more.created] == [True, False, False]
        assert first.id == again.id == once_more.id
        assert await state(sandbox, first.id) == "cancelled"
        assert await kinds(sandbox, first.id) == ["start", "action", "end"]


async def test_the_same_key_with_another_input_is_a_conflict_that_names_the_run(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        first = await sandbox.client.start(pipeline, {"topic": "tea"}, key="monday")
        with pytest.raises(Conflict, match=str(first.id)):
            await sandbox.client.start(pipeline, {"topic": "coffee"}, key="monday")
        assert len(await sandbox.client.runs.list()) == 1


async def test_a_key_identifies_the_request_where_the_input_was_derived_from_it(open_sandbox: OpenSandbox) -> None:
    pipeline, requested = make_article(), Brief(topic="tea")
    async with open_sandbox(pipeline) as sandbox:
        first = await sandbox.client.start(pipeline, {"topic": "tea", "words": 300}, key="monday", request=requested)
        again = await sandbox.client.start(pipeline, {"topic": "tea", "words": 900}, key="monday", request=requested)
        assert (again.id, (await sandbox.client.runs.get(again.id)).input["words"]) == (first.id, 300)
        with pytest.raises(Conflict):
            await sandbox.client.start(pipeline, {"words": 300}, key="monday", request=Brief(topic="coffee"))


async def test_a_key_belongs_to_its_tenant_and_its_pipeline(open_sandbox: OpenSandbox) -> None:
    pipeline, other = make_article(), make_article("other")
    async with open_sandbox(pipeline, other) as sandbox:
        runs = [
            await sandbox.client.start(pipeline, {"topic": "tea"}, key="monday", tenant="ours"),
            await sandbox.client.start(pipeline, {"topic": "coffee"}, key="monday", tenant="theirs"),
            await sandbox.client.start(other, {"topic": "cocoa"}, key="monday", tenant="ours"),
        ]
        found = [
            await sandbox.client.runs.find_by_key("monday", pipeline, tenant="ours"),
            await sandbox.client.runs.find_by_key("monday", pipeline, tenant="theirs"),
            await sandbox.client.runs.find_by_key("monday", "other", tenant="ours"),
        ]
        assert await sandbox.client.runs.find_by_key("monday", other, tenant="theirs") is None
        assert await sandbox.client.runs.find_by_key("monday", other, tenant="nobody") is None
    assert [run.created for run in runs] == [True] * 3
    assert found == [run.id for run in runs]


async def test_a_key_outlives_its_run(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        first = await sandbox.client.start(pipeline, key="monday")
        for table, column in (("jobs", "run"), ("runs", "id")):
            await rows(sandbox, f"delete from retoma.{table} where {column} = $1", first.id)
        with pytest.raises(RunRemoved, match="monday"):
            await sandbox.client.start(pipeline, key="monday")
        assert await sandbox.client.runs.list() == []


async def test_a_key_that_occurs_twice_in_one_batch_starts_one_run(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        started = await asyncio.gather(*(sandbox.client.start(pipeline, key="monday") for _ in range(20)))
        assert len({run.id for run in started}) == 1
        assert [run.created for run in started].count(True) == 1
        assert len(await sandbox.client.runs.list()) == 1


async def test_a_conflict_in_a_batch_affects_only_its_own_start(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)  # what a batch needs to know is known from here on
        first, other, free = await asyncio.gather(
            sandbox.client.start(pipeline, {"topic": "tea"}, key="monday"),
            sandbox.client.start(pipeline, {"topic": "coffee"}, key="monday"),
            sandbox.client.start(pipeline, {"topic": "coffee"}),
            return_exceptions=True,
        )
        assert isinstance(other, Conflict)
        assert not isinstance(first, BaseException)
        assert not isinstance(free, BaseException)
        assert [run.id for run in await sandbox.client.runs.list()][:-1] == [free.id, first.id]


async def test_a_start_that_the_database_refuses_fails_alone(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)  # what a batch needs to know is known from here on
        good, bad, too_high = await asyncio.gather(
            sandbox.client.start(pipeline, key="monday"),
            sandbox.client.start(pipeline, key="mon\0day"),
            sandbox.client.start(pipeline, priority=10**15),
            return_exceptions=True,
        )
        assert isinstance(bad, Exception)
        assert isinstance(too_high, Exception)
        assert not isinstance(good, BaseException)
        assert [run.id for run in await sandbox.client.runs.list()][:-1] == [good.id]


async def test_two_clients_that_start_the_same_key_concurrently_start_one_run(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        other = Client(sandbox.app, sandbox.database)
        for number in range(20):
            both = await asyncio.gather(
                sandbox.client.start(pipeline, key=f"key {number}"), other.start(pipeline, key=f"key {number}")
            )
            assert both[0].id == both[1].id
            assert sorted(run.created for run in both) == [False, True]
        await other.close()
        assert len(await sandbox.client.runs.list()) == 20


async def test_two_clients_with_the_same_key_and_other_inputs_have_one_winner(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        other = Client(sandbox.app, sandbox.database)
        for number in range(10):
            both = await asyncio.gather(
                sandbox.client.start(pipeline, {"topic": "tea"}, key=f"key {number}"),
                other.start(pipeline, {"topic": "coffee"}, key=f"key {number}"),
                return_exceptions=True,
            )
            assert sorted(type(one).__name__ for one in both) == ["KeyReused", "StartedRun"]
        await other.close()


async def test_a_start_resent_under_the_same_id_is_the_same_run(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        start = await make_start(sandbox, pipeline)
        starter = RunStarter(sandbox.database)
        first = await starter.start(start)
        await sandbox.work()
        again = await starter.start(start)
        await starter.close()
        assert (first.created, again.created) == (True, False)
        assert first.id == again.id == start.id
        assert await kinds(sandbox, start.id) == ["start", "result outline", "result draft", "end"]


@pytest.mark.parametrize("key", [None, "article-1"])
async def test_a_start_resent_before_its_first_call_is_committed_is_one_run(
    key: str | None, open_sandbox: OpenSandbox
) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        start = (await make_start(sandbox, pipeline))._replace(key=key, digest=b"tea" if key else None)
        starter = RunStarter(sandbox.database)
        async with uncommitted_start(sandbox, start) as commit:
            again = asyncio.create_task(starter.start(start))
            await wait_until(lambda: is_blocked(sandbox, "start_runs"))
            await commit()
        assert await again == StartedRun(start.id, created=False)
        await starter.close()
        assert await kinds(sandbox, start.id) == ["start"]


async def test_a_start_whose_answer_is_lost_takes_effect_once(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        lost = lose_answer(monkeypatch, "start_runs")
        started = await sandbox.client.start(pipeline)
        assert lost
        assert [run.id for run in await sandbox.client.runs.list()] == [started.id]
        assert await kinds(sandbox, started.id) == ["start"]


async def test_concurrent_starts_are_sent_together(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)
        await asyncio.gather(*(sandbox.client.start(pipeline) for _ in range(200)))
        assert len(await sandbox.client.runs.list(limit=500)) == 201
        assert await value(sandbox, "select count(distinct xmin::text) from retoma.runs") < 20


async def test_runs_started_together_keep_their_order(open_sandbox: OpenSandbox) -> None:
    pipeline = make_article()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        started = await sandbox.client.start_many(pipeline, [{"topic": str(number)} for number in range(30)])
        claimed = [(await worker.claim(1))[0].run for _ in range(30)]
    assert claimed == [run.id for run in started]


async def release_after(sandbox: Sandbox, time: timedelta) -> int:
    await sandbox.clock.advance(time)
    promoted: int = await value(sandbox, "select released from retoma.release_due_jobs(10)")
    return promoted


@asynccontextmanager
async def uncommitted_start(sandbox: Sandbox, start: StartRequest) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Start a run in a transaction that the test commits."""
    connection = await sandbox.database.connect()
    transaction = connection.transaction()
    await transaction.start()
    try:
        columns = [() if value is None else (value,) for value in start]
        await connection.fetch(statements("engine_calls")["start_runs"].sql, *columns, False)
        yield transaction.commit
    finally:
        await connection.close()


async def make_start(sandbox: Sandbox, pipeline: Pipeline) -> StartRequest:
    return StartRequest(
        id=new_run_id(),
        tenant=await Tenants(sandbox.database).get_or_create_id("default"),
        version=await register(sandbox.database, pipeline),
        input='{"topic": "tea"}',
    )


def make_article(name: str = "article") -> Pipeline:
    pipeline = Pipeline(name, inputs=Brief)

    @pipeline.step
    async def outline(topic: str) -> str:
        return topic

    @pipeline.step
    async def draft(outline: str) -> str:
        return outline

    return pipeline
