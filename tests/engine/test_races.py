"""Two concurrent connections: invariants that hold whichever commits first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from retoma import Items, Pipeline, Retry
from retoma.engine import outcomes
from retoma.engine.outcomes import AttemptError, Outcome, Success
from retoma.store.statements import statements
from retoma.testing import ManualWorker, Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import (
    RawChannel,
    find_claim,
    kinds,
    name,
    names,
    open_channel,
    rows,
    run_claims,
    run_next,
    state,
    states,
    value,
)
from tests.wait_timeout import WAIT_TIMEOUT

WORKERS = 6


async def test_a_join_fires_once_however_many_workers_finish_its_last_items_concurrently(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = items_and_a_join(WORKERS)
    async with open_sandbox(pipeline) as sandbox, open_workers(sandbox, WORKERS) as workers:
        for _ in range(40):
            run = (await sandbox.client.start(pipeline)).id
            await run_next(workers[0], "numbers")
            held = [await worker.claim(1) for worker in workers]
            outcomes = [await worker.attempt(claims) for worker, claims in zip(workers, held, strict=True)]
            next_ones = await asyncio.gather(
                *(worker.record_outcomes(mine, limit=1) for worker, mine in zip(workers, outcomes, strict=True))
            )
            fired = [(worker, claims) for worker, claims in zip(workers, next_ones, strict=True) if claims]
            # The one that saw the last item need not be the one that claims.
            fired += [(workers[0], claims) for claims in [await workers[0].claim(1)] if claims]
            ((worker, claims),) = fired
            assert names(claims) == ["total"]
            await run_claims(worker, claims)
            assert (await sandbox.client.runs.get_results(run))["total"] == sum(range(WORKERS))
            assert (await kinds(sandbox, run)).count("end") == 1


async def test_a_step_with_two_dependencies_is_ready_once_when_both_end(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("diamond")

    @pipeline.step
    async def left() -> int:
        return 1

    @pipeline.step
    async def right() -> int:
        return 2

    @pipeline.step
    async def both(left: int, right: int) -> int:
        return left + right

    async with open_sandbox(pipeline) as sandbox, open_workers(sandbox, 2) as (one_hand, other_hand):
        for _ in range(30):
            run = (await sandbox.client.start(pipeline)).id
            mine, others = await one_hand.claim(1), await other_hand.claim(1)
            await asyncio.gather(run_claims(one_hand, mine), run_claims(other_hand, others))
            await run_next(one_hand, "both")
            assert (await sandbox.client.runs.get_results(run))["both"] == 3


async def test_the_second_of_two_last_items_waits_for_the_first_and_fires_the_join(open_sandbox: OpenSandbox) -> None:
    pipeline = items_and_a_join(2)
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (first, second):
        run = await start_until_items(sandbox, pipeline)
        mine, others = await first.call(limit=1), await second.call(limit=1)
        async with begin_uncommitted_call(sandbox, first, results(mine)) as commit:
            ending = asyncio.create_task(second.call(results(others), limit=1))
            await wait_until(lambda: is_blocked(sandbox, "finish_and_claim"))
            assert not ending.done()
            await commit()
            assert names(await ending) == ["total"]
        assert (await states(sandbox, run))["total"] == "running"


async def test_the_second_of_two_concurrent_last_sinks_ends_the_run(open_sandbox: OpenSandbox) -> None:
    pipeline = items(2)
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (first, second):
        run = await start_until_items(sandbox, pipeline)
        mine, others = await first.call(limit=1), await second.call(limit=1)
        async with begin_uncommitted_call(sandbox, first, results(mine)) as commit:
            ending = asyncio.create_task(second.call(results(others)))
            await wait_until(lambda: is_blocked(sandbox, "finish_and_claim"))
            await commit()
            await ending
        assert await state(sandbox, run) == "completed"
        assert (await kinds(sandbox, run)).count("end") == 1


async def test_a_successor_created_during_a_cancel_starts_nothing_more(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain()
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, _):
        run = (await sandbox.client.start(pipeline)).id
        claims = await link.call(limit=1)
        async with begin_uncommitted_call(sandbox, link, results(claims), limit=1) as commit:
            cancel = asyncio.create_task(sandbox.client.runs.cancel(run))
            await wait_until(lambda: is_blocked(sandbox, "cancel_run"))
            await commit()
            assert await cancel == "cancelling"
        assert await states(sandbox, run) == {"first": "succeeded", "second": "running"}
        assert await link.call(results(await link.link.list_held()), limit=5) == []
        assert await states(sandbox, run) == {"first": "succeeded", "second": "succeeded"}
        assert await state(sandbox, run) == "cancelled"


async def test_a_job_claimed_during_a_cancel_starts_nothing_more(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain()
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, _):
        run = (await sandbox.client.start(pipeline)).id
        async with begin_uncommitted_call(sandbox, link, limit=1) as commit:
            cancel = asyncio.create_task(sandbox.client.runs.cancel(run))
            await wait_until(lambda: is_blocked(sandbox, "cancel_run"))
            await commit()
            assert await cancel == "cancelling"
        assert await link.call(results(await link.link.list_held()), limit=5) == []
        assert await states(sandbox, run) == {"first": "succeeded"}
        assert await state(sandbox, run) == "cancelled"


async def test_items_created_during_a_cancel_never_run(open_sandbox: OpenSandbox) -> None:
    pipeline = items_and_a_join(3)
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, _):
        run = (await sandbox.client.start(pipeline)).id
        claims = await link.call(limit=1)
        source = Success(claims[0], "[0, 1, 2]", {str(number): str(number) for number in range(3)})
        async with begin_uncommitted_call(sandbox, link, [source]) as commit:
            cancel = asyncio.create_task(sandbox.client.runs.cancel(run))
            await wait_until(lambda: is_blocked(sandbox, "cancel_run"))
            await commit()
            assert await cancel == "cancelled"
        found = await states(sandbox, run)
        assert found.pop("numbers") == "succeeded"
        assert (len(found), set(found.values())) == (4, {"cancelled"})


async def test_a_successor_created_while_a_failure_stops_its_run_starts_nothing_more(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = make_chain()

    @pipeline.step(retry=Retry(0))
    async def broken() -> int:
        raise OSError("broken")

    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, other):
        run = (await sandbox.client.start(pipeline)).id
        claims = await other.call(limit=2)
        await other.call([outcomes.Returned(find_claim(claims, "first"))])
        mine = await link.call(limit=1)
        assert names(mine) == ["first"]
        async with begin_uncommitted_call(sandbox, link, results(mine), limit=1) as commit:
            failing = asyncio.create_task(
                other.call([outcomes.Failure(find_claim(claims, "broken"), AttemptError("ERROR"))])
            )
            await wait_until(lambda: is_blocked(sandbox, "finish_and_claim"))
            await commit()
            await failing
        assert await link.call(results(await link.link.list_held()), limit=5) == []
        assert await states(sandbox, run) == {"broken": "failed", "first": "succeeded", "second": "succeeded"}
        assert await state(sandbox, run) == "failed"


async def test_a_finish_that_waits_for_a_cancel_starts_nothing(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain()
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, _):
        run = (await sandbox.client.start(pipeline)).id
        claims = await link.call(limit=1)
        connection = await sandbox.database.connect()
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetch("select retoma.cancel_run($1, null, 'test')", run)
        finish = asyncio.create_task(link.call(results(claims), limit=5))
        await wait_until(lambda: is_blocked(sandbox, "finish_and_claim"))
        await transaction.commit()
        assert await finish == []
        await connection.close()
        assert await states(sandbox, run) == {"first": "succeeded"}
        assert await state(sandbox, run) == "cancelled"


async def test_the_last_two_jobs_of_a_cancelled_run_end_it_once_when_they_end_concurrently(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = items(2)
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (first, second):
        run = await start_until_items(sandbox, pipeline)
        mine, others = await first.call(limit=1), await second.call(limit=1)
        assert await sandbox.client.runs.cancel(run) == "cancelling"
        async with begin_uncommitted_call(sandbox, first, results(mine)) as commit:
            ending = asyncio.create_task(second.call(results(others)))
            await wait_until(lambda: is_blocked(sandbox, "finish_and_claim"))
            await commit()
            await ending
        assert await state(sandbox, run) == "cancelled"
        assert (await kinds(sandbox, run)).count("end") == 1


@pytest.mark.parametrize("first_to_commit", ["documents", "taxonomy"])
@pytest.mark.parametrize("taxonomy_fails", [False, True])
async def test_a_source_and_a_shared_dependency_of_its_items_may_end_concurrently(
    open_sandbox: OpenSandbox, first_to_commit: str, taxonomy_fails: bool
) -> None:
    pipeline = make_shared_dependency()
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, other):
        run = (await sandbox.client.start(pipeline)).id
        claims = [*await link.call(limit=1), *await other.call(limit=1)]
        ends: dict[str, Outcome] = {
            "documents": Success(find_claim(claims, "documents"), '["a", "b"]', {"a": '"a"', "b": '"b"'}),
            "taxonomy": outcomes.Failure(find_claim(claims, "taxonomy"), AttemptError("ERROR"))
            if taxonomy_fails
            else Success(find_claim(claims, "taxonomy"), '"tax"'),
        }
        holders = {name(claim): holder for claim, holder in zip(claims, (link, other), strict=True)}
        (second_to_commit,) = ends.keys() - {first_to_commit}
        async with begin_uncommitted_call(sandbox, holders[first_to_commit], [ends[first_to_commit]]) as commit:
            ending = asyncio.create_task(holders[second_to_commit].call([ends[second_to_commit]]))
            await wait_until(lambda: is_blocked(sandbox, "finish_and_claim"))
            await commit()
            await ending
        found = await states(sandbox, run)
        expected = "skipped" if taxonomy_fails else "ready"
        assert (found["label:a"], found["label:b"]) == (expected, expected)
        assert await value(sandbox, "select sum(waiting_on) from retoma.jobs where step = 'label'") == 0


async def test_stopping_a_run_does_not_block_workers_that_end_its_jobs(open_sandbox: OpenSandbox) -> None:
    """It waits for them; if they waited for it too, only the server's deadlock check would free them."""
    pipeline = make_shared_dependency()
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, _):
        run = (await sandbox.client.start(pipeline)).id
        claims = await link.call(limit=2)
        source = Success(find_claim(claims, "documents"), '["a"]', {"a": '"a"'})
        connection = await sandbox.database.connect()
        async with connection.transaction(), asyncio.timeout(WAIT_TIMEOUT):
            await connection.fetch("select retoma.lock_runs('stop', array[$1::uuid])", run)
            await link.call([source])
            await link.call([Success(find_claim(claims, "taxonomy"), '"tax"')])
        await connection.close()
        assert (await states(sandbox, run))["label:a"] == "ready"


@pytest.mark.parametrize("shape", ["chain", "fan-out", "shared"])
async def test_a_cancel_that_races_with_finishes_leaves_no_live_job(open_sandbox: OpenSandbox, shape: str) -> None:
    pipeline = {"chain": make_chain, "fan-out": lambda: items_and_a_join(4), "shared": make_shared_dependency}[shape]()
    async with open_sandbox(pipeline) as sandbox, open_workers(sandbox, 3) as workers:
        for number in range(25):
            run = (await sandbox.client.start(pipeline)).id
            started_late: list[str] = []
            stop = asyncio.Event()
            working = [asyncio.create_task(work(worker, stop, started_late)) for worker in workers]
            for _ in range(number % 7):
                await asyncio.sleep(0)
            answer = await sandbox.client.runs.cancel(run)
            stop.set()
            await asyncio.gather(*working)
            assert answer in ("cancelling", "cancelled", "completed")
            assert started_late == []
            assert await state(sandbox, run) == ("completed" if answer == "completed" else "cancelled")
            assert not {"running", "ready", "waiting"} & set((await states(sandbox, run)).values())
            assert [await worker.claim(5) for worker in workers] == [[], [], []]


async def test_a_stopping_failure_that_races_with_finishes_leaves_no_live_job(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("stops", retry=Retry(0))

    @pipeline.step
    async def numbers() -> list[int]:
        return [0, 1, 2]

    @pipeline.each(numbers, on_failure="stop")
    async def square(number: int) -> int:
        if number == 0:
            raise OSError("zero")
        return number

    @pipeline.each(numbers)
    async def cube(square: int) -> int:
        return square

    async with open_sandbox(pipeline) as sandbox, open_workers(sandbox, 3) as workers:
        for _ in range(25):
            run = (await sandbox.client.start(pipeline)).id
            await run_next(workers[0], "numbers")
            held = [await worker.claim(1) for worker in workers]
            outcomes = [await worker.attempt(claims) for worker, claims in zip(workers, held, strict=True)]
            late = await asyncio.gather(
                *(worker.record_outcomes(mine, limit=1) for worker, mine in zip(workers, outcomes, strict=True))
            )
            for worker, claims in zip(workers, late, strict=True):
                await run_claims(worker, claims)
            assert await state(sandbox, run) == "failed"
            assert not {"running", "ready", "waiting"} & set((await states(sandbox, run)).values())


async def work(worker: ManualWorker, stop: asyncio.Event, started_late: list[str]) -> None:
    """Work until nothing is left; record the results of calls that began after the stop."""
    claims = await worker.claim(2)
    while claims:
        outcomes = await worker.attempt(claims)
        late = stop.is_set()
        claims = await worker.record_outcomes(outcomes, limit=2)
        if late:
            started_late += names(claims)


@asynccontextmanager
async def open_workers(sandbox: Sandbox, count: int) -> AsyncIterator[list[ManualWorker]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(sandbox.manual_worker()) for _ in range(count)]


@asynccontextmanager
async def open_two_channels(sandbox: Sandbox) -> AsyncIterator[tuple[RawChannel, RawChannel]]:
    yield await open_channel(sandbox), await open_channel(sandbox)


@asynccontextmanager
async def begin_uncommitted_call(
    sandbox: Sandbox, channel: RawChannel, outcomes: list[Any] | None = None, *, limit: int = 0
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Make a call over this link that is committed only when the test says so."""
    arguments = channel.next_call(outcomes or [], limit=limit)
    connection = await sandbox.database.connect()
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.fetch(statements("engine_calls")["finish_and_claim"].sql, *arguments)
        yield transaction.commit
    finally:
        await connection.close()


async def is_blocked(sandbox: Sandbox, function: str) -> bool:
    found = await rows(
        sandbox,
        "select from pg_stat_activity "
        "where datname = current_database() and wait_event_type = 'Lock' and query like $1",
        f"%retoma.{function}%",
    )
    return bool(found)


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT):
        while not await holds():  # noqa: ASYNC110  (it happens in the server)
            await asyncio.sleep(0.002)


async def start_until_items(sandbox: Sandbox, pipeline: Pipeline) -> UUID:
    """A run whose source has ended."""
    async with sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "numbers")
    return run


def results(claims: Any) -> list[Success]:
    return [Success(claim, "1") for claim in claims]


def make_chain() -> Pipeline:
    pipeline = Pipeline("chain")

    @pipeline.step
    async def first() -> int:
        return 1

    @pipeline.step
    async def second(first: int) -> int:
        return 2

    @pipeline.step
    async def third(second: int) -> int:
        return 3

    return pipeline


def items(count: int) -> Pipeline:
    pipeline = Pipeline("items")

    @pipeline.step
    async def numbers() -> list[int]:
        return list(range(count))

    @pipeline.each(numbers)
    async def square(number: int) -> int:
        return number

    return pipeline


def items_and_a_join(count: int) -> Pipeline:
    pipeline = items(count)

    @pipeline.step
    async def total(square: Items[int]) -> int:
        return sum(square)

    return pipeline


def make_shared_dependency() -> Pipeline:
    pipeline = Pipeline("shared")

    @pipeline.step
    async def documents() -> list[str]:
        return ["a", "b"]

    @pipeline.step(on_failure="continue")
    async def taxonomy() -> str:
        return "tax"

    @pipeline.each(documents)
    async def label(document: str, taxonomy: str) -> str:
        return f"{document} {taxonomy}"

    @pipeline.step
    async def report(label: Items[str]) -> int:
        return len(label)

    return pipeline


async def test_a_call_with_outcomes_locks_jobs_in_the_same_order_as_a_stop(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = Pipeline("two", retry=Retry(1))

    @pipeline.step
    async def a() -> int:
        return 1

    @pipeline.step
    async def b() -> int:
        return 2

    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, _):
        await sandbox.client.start(pipeline)
        claims = {claim.step: claim for claim in await link.call(limit=2)}
        connection = await sandbox.database.connect()
        try:
            async with connection.transaction():
                await connection.fetch("select from retoma.jobs where step = 'a' for update")
                call = asyncio.create_task(
                    link.call([Success(claims["a"], "1"), outcomes.Retried(claims["b"], AttemptError("ERROR"))])
                )
                await wait_until(lambda: is_blocked(sandbox, "finish_and_claim"))
                assert await rows(sandbox, "select step from retoma.jobs where step = 'b' for update skip locked")
            await call
        finally:
            await connection.close()


async def test_a_call_that_may_stop_its_run_waits_for_a_concurrent_stop_before_locking_a_job(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = Pipeline("two", retry=Retry(0))

    @pipeline.step
    async def a() -> int:
        return 1

    @pipeline.step
    async def b() -> int:
        return 2

    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, _):
        run = (await sandbox.client.start(pipeline)).id
        claims = {claim.step: claim for claim in await link.call(limit=2)}
        connection = await sandbox.database.connect()
        try:
            async with connection.transaction():
                await connection.execute("select retoma.lock_runs('stop', array[$1::uuid])", run)
                call = asyncio.create_task(
                    link.call([Success(claims["a"], "1"), outcomes.Failure(claims["b"], AttemptError("ERROR"))])
                )
                await wait_until(lambda: is_blocked(sandbox, "finish_and_claim"))
                assert len(await rows(sandbox, "select step from retoma.jobs for update skip locked")) == 2
            await call
        finally:
            await connection.close()


async def test_a_job_that_becomes_ready_and_is_claimed_during_a_cancel_starts_nothing_more(
    open_sandbox: OpenSandbox,
) -> None:
    """The job is neither among the running nor among the waiting ones when these are read: a second read finds it."""
    pipeline = Pipeline("woven")

    @pipeline.step
    async def a() -> int:
        return 1

    @pipeline.step
    async def c() -> int:
        return 1

    @pipeline.step
    async def d() -> int:
        return 1

    @pipeline.step
    async def b(c: int, d: int) -> int:
        return c + d

    @pipeline.step
    async def w(a: int, c: int) -> int:
        return a + c

    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (first, second):
        run = (await sandbox.client.start(pipeline)).id
        claims = {claim.step: claim for claim in await first.call(limit=3)}
        await first.call(results([claims["d"]]))
        async with hold_job(sandbox, "a") as runs:
            cancel = asyncio.create_task(sandbox.client.runs.cancel(run))
            await wait_until(lambda: is_blocked(sandbox, "cancel_run"))
            await first.call(results([claims["c"]]))
            async with hold_job(sandbox, "w") as waits:
                await runs.close()
                await wait_until(lambda: is_blocked_by_another(sandbox, runs))
                async with begin_uncommitted_call(sandbox, second, limit=1) as commit:
                    await waits.close()
                    await wait_until(lambda: is_blocked_by_another(sandbox, waits))
                    await commit()
                    assert await cancel == "cancelling"
        assert await rows(sandbox, "select step from retoma.jobs where state = 'running' and not stopping") == []
        assert await states(sandbox, run) == {
            "a": "running",
            "b": "running",
            "c": "succeeded",
            "d": "succeeded",
            "w": "cancelled",
        }


class Holder:
    """A transaction that holds one job until it is closed."""

    def __init__(self, connection: Any) -> None:
        self.close = connection.close
        self.process = connection.get_server_pid()


@asynccontextmanager
async def hold_job(sandbox: Sandbox, step: str) -> AsyncIterator[Holder]:
    connection = await sandbox.database.connect()
    try:
        await connection.execute(f"begin; select from retoma.jobs where step = '{step}' for update")
        yield Holder(connection)
    finally:
        await connection.close()


async def is_blocked_by_another(sandbox: Sandbox, holder: Holder) -> bool:
    """Whether the cancel waits, and no longer for this one."""
    found = await rows(
        sandbox,
        "select pg_blocking_pids(pid) as pids from pg_stat_activity "
        "where datname = current_database() and wait_event_type = 'Lock' and query like '%retoma.cancel_run%'",
    )
    return any(row["pids"] and holder.process not in row["pids"] for row in found)
