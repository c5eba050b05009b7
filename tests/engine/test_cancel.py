"""Cancelling a run: nothing new starts, running jobs may end, and committed results are kept."""

from __future__ import annotations

from datetime import timedelta
from unittest.mock import ANY

import pytest

from retoma import Items, Pipeline, Retry
from retoma.errors import NotFound
from retoma.store import workers
from retoma.store.workers import ReleasedJobs
from tests.conftest import OpenSandbox
from tests.engine.builders import codes, kinds, pass_heartbeat_timeout, run_claims, run_next, state, states


async def test_a_cancelled_run_is_cancelling_until_its_last_job_has_ended(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain_and_a_side()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(10)
        assert await sandbox.client.runs.cancel(run) == "cancelling"
        await run_claims(worker, claims, "side")
        assert await state(sandbox, run) == "cancelling"
        await run_claims(worker, claims, "first")
        assert await state(sandbox, run) == "cancelled"


async def test_a_result_after_the_cancel_is_kept_and_starts_no_successor(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain_and_a_side()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(10)
        await sandbox.client.runs.cancel(run)
        outcomes = await worker.attempt(claims)
        assert await worker.record_outcomes(outcomes, limit=10) == []
        assert await states(sandbox, run) == {"first": "succeeded", "side": "succeeded", "last": "cancelled"}
        assert await sandbox.client.runs.get_results(run) == {"first": 1, "side": 3}
        assert worker.rejected_outcomes == 0


async def test_results_committed_before_the_cancel_stay(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain_and_a_side()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "first", "side")
        assert await sandbox.client.runs.cancel(run) == "cancelled"
        assert await sandbox.client.runs.get_results(run) == {"first": 1, "side": 3}
        assert (await states(sandbox, run))["second"] == "cancelled"
        assert (await codes(sandbox, run))["second"] == "RUN_STOPPED"
        assert await worker.claim(10) == []


async def test_a_run_with_nothing_running_is_cancelled_at_once(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain_and_a_side()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        assert await sandbox.client.runs.cancel(run) == "cancelled"
        assert set((await states(sandbox, run)).values()) == {"cancelled"}
        assert await worker.claim(10) == []


async def test_a_repeated_cancel_returns_the_same_answer_and_changes_nothing(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain_and_a_side()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(10)
        assert [await sandbox.client.runs.cancel(run) for _ in range(3)] == ["cancelling"] * 3
        await run_claims(worker, claims)
        before = await sandbox.client.runs.list_events(run)
        assert [await sandbox.client.runs.cancel(run) for _ in range(2)] == ["cancelled"] * 2
        assert await sandbox.client.runs.list_events(run) == before
        assert (await kinds(sandbox, run)).count("action") == 1


async def test_cancelling_an_ended_run_changes_nothing(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain_and_a_side()
    failing = Pipeline("fails", retry=Retry(0))

    @failing.step
    async def answer() -> int:
        raise OSError("away")

    async with open_sandbox(pipeline, failing) as sandbox:
        completed = await sandbox.run(pipeline)
        failed = await sandbox.run(failing)
        assert await sandbox.client.runs.cancel(completed.id) == "completed"
        assert await sandbox.client.runs.cancel(failed.id) == "failed"


async def test_a_run_that_has_not_started_is_cancelled_at_once_and_never_starts(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain_and_a_side()
    async with open_sandbox(pipeline) as sandbox:
        later = await sandbox.clock.now() + timedelta(hours=1)
        run = (await sandbox.client.start(pipeline, run_at=later)).id
        assert await sandbox.client.runs.cancel(run) == "cancelled"
        await sandbox.clock.advance(timedelta(hours=2))
        assert await sandbox.work() == 0
        assert await state(sandbox, run) == "cancelled"


async def test_a_cancelled_delayed_retry_never_runs(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("delayed")

    @pipeline.step(retry=Retry(3, delays=[60]))
    async def answer() -> int:
        raise OSError("away")

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "answer")
        assert await sandbox.client.runs.cancel(run) == "cancelled"
        assert await workers.release_due_jobs(sandbox.database, 10) == ReleasedJobs(0, None, None, ANY)
        assert await states(sandbox, run) == {"answer": "cancelled"}


async def test_an_attempt_that_fails_after_the_cancel_is_not_retried(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("fails")

    @pipeline.step(retry=Retry(3))
    async def answer() -> int:
        raise OSError("away")

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim()
        await sandbox.client.runs.cancel(run)
        await run_claims(worker, claims)
        assert await states(sandbox, run) == {"answer": "cancelled"}
        assert await state(sandbox, run) == "cancelled"


async def test_a_permanent_failure_after_the_cancel_leaves_the_run_cancelled(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("fails", retry=Retry(0))

    @pipeline.step
    async def answer() -> int:
        raise OSError("away")

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim()
        await sandbox.client.runs.cancel(run)
        await run_claims(worker, claims)
        assert await states(sandbox, run) == {"answer": "failed"}
        assert await state(sandbox, run) == "cancelled"


async def test_a_source_that_ends_after_the_cancel_creates_no_items(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("items")

    @pipeline.step
    async def documents() -> list[str]:
        return ["a", "b"]

    @pipeline.each(documents)
    async def label(document: str) -> str:
        return document

    @pipeline.step
    async def report(label: Items[str]) -> int:
        return len(label)

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim()
        await sandbox.client.runs.cancel(run)
        await run_claims(worker, claims, "documents")
        assert await states(sandbox, run) == {"documents": "succeeded", "report": "cancelled"}
        assert await state(sandbox, run) == "cancelled"


async def test_jobs_of_a_dead_worker_in_a_cancelled_run_end_the_run(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain_and_a_side()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await worker.claim(10)
        assert await sandbox.client.runs.cancel(run) == "cancelling"
        await pass_heartbeat_timeout(sandbox)
        assert await state(sandbox, run) == "cancelled"
        assert set((await states(sandbox, run)).values()) == {"cancelled"}


async def test_jobs_returned_by_a_stopping_worker_in_a_cancelled_run_end_the_run(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain_and_a_side()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        async with sandbox.manual_worker() as worker:
            await worker.claim(10)
            await sandbox.client.runs.cancel(run)
        assert await state(sandbox, run) == "cancelled"


async def test_a_cancel_takes_precedence_over_a_failure_that_is_stopping_the_run(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("stopping", retry=Retry(0))

    @pipeline.step
    async def broken() -> int:
        raise OSError("broken")

    @pipeline.step
    async def slow() -> int:
        return 1

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(2)
        await run_claims(worker, claims, "broken")
        assert await sandbox.client.runs.cancel(run) == "cancelling"
        await run_claims(worker, claims, "slow")
        assert await state(sandbox, run) == "cancelled"


async def test_a_cancel_does_not_affect_other_runs(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain_and_a_side()
    async with open_sandbox(pipeline) as sandbox:
        first, second = await sandbox.client.start_many(pipeline, [None, None])
        await sandbox.client.runs.cancel(first.id)
        await sandbox.work()
        assert await state(sandbox, second.id) == "completed"


async def test_a_cancel_records_who_requested_it(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain_and_a_side()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await sandbox.client.runs.cancel(run, by="ana")
        (act,) = (event for event in await sandbox.client.runs.list_events(run) if event.kind == "action")
        assert act.data == {"action": "cancel", "by": "ana"}
        assert await kinds(sandbox, run) == ["start", "action", "end"]


async def test_a_tenant_cannot_cancel_the_run_of_another(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain_and_a_side()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline, tenant="ours")).id
        with pytest.raises(NotFound):
            await sandbox.client.runs.cancel(run, tenant="theirs")
        assert await state(sandbox, run) == "running"
        assert await sandbox.client.runs.cancel(run, tenant="ours") == "cancelled"


def make_chain_and_a_side() -> Pipeline:
    pipeline = Pipeline("chain")

    @pipeline.step
    async def first() -> int:
        return 1

    @pipeline.step
    async def second(first: int) -> int:
        return 2

    @pipeline.step
    async def side() -> int:
        return 3

    @pipeline.step
    async def last(second: int, side: int) -> int:
        return 4

    return pipeline
