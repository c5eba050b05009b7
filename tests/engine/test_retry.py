"""Attempts that fail and are retried, in virtual time."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from unittest.mock import ANY

import pytest
from pydantic import BaseModel

from retoma import Context, GiveUp, Items, Pipeline, Retry, RetryLater, exponential, fixed_delay, seconds
from retoma.records import Job
from retoma.store import workers
from retoma.store.workers import ReleasedJobs
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import kinds, pass_heartbeat_timeout, run_claims, run_next, state


class Batch(BaseModel):
    documents: list[str] = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("retry", "waits"),
    [
        (Retry(0), []),
        (Retry(3, delays=[10, 30], jitter=0), [10, 30, 30]),
        (Retry(3, backoff=exponential(5), jitter=0), [5, 10, 20]),
        (Retry(4, backoff=exponential(5, factor=3, cap=20), jitter=0), [5, 15, 20, 20]),
        (Retry(2, backoff=fixed_delay(60), jitter=0), [60, 60]),
        (Retry(2, delays=[0], jitter=0), [0, 0]),
    ],
)
async def test_retries_follow_the_configured_delays(
    open_sandbox: OpenSandbox, retry: Retry, waits: list[float]
) -> None:
    began: list[datetime] = []
    pipeline = Pipeline("series")

    @pipeline.step(retry=retry)
    async def answer(*, clock: list[Sandbox]) -> int:
        began.append(await clock[0].clock.now())
        raise OSError("away")

    clock: list[Sandbox] = []
    async with open_sandbox(pipeline, resources={"clock": clock}) as sandbox:
        clock.append(sandbox)
        run = await sandbox.run(pipeline)
    assert [(later - before).total_seconds() for before, later in pairwise(began)] == waits
    assert run.state == "failed"


async def test_a_delay_varies_by_its_jitter(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("jitter", inputs=Batch)

    @pipeline.each("documents", retry=Retry(1, delays=[100], jitter=0.1))
    async def label(document: str) -> str:
        raise OSError("away")

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline, {"documents": [str(number) for number in range(50)]})).id
        now = await sandbox.clock.now()
        await run_next(worker, "documents")
        await run_next(worker)
        delays = {job.ready_at - now for job in await sandbox.client.runs.list_jobs(run) if job.ready_at}
    assert len(delays) > 40
    assert seconds(90) <= min(delays) < seconds(100) < max(delays) <= seconds(110)


async def test_a_job_that_waits_for_its_retry_is_ready_later_and_reports_why(open_sandbox: OpenSandbox) -> None:
    pipeline = make_flaky_step(Retry(1, delays=[10], jitter=0), failures=1)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        now = await sandbox.clock.now()
        await run_next(worker, "answer")
        job = await only_job(sandbox)
        assert (job.state, job.code, job.attempt, job.ready_at) == ("ready", "ERROR", 1, now + seconds(10))
        assert await state(sandbox, run) == "running"
        assert await worker.claim() == []

        await sandbox.clock.advance(seconds(9.9))
        assert await workers.release_due_jobs(sandbox.database, 10) == ReleasedJobs(0, seconds(0.1), None, ANY)
        assert await worker.claim() == []
        await sandbox.clock.advance(seconds(0.1))
        assert await workers.release_due_jobs(sandbox.database, 10) == ReleasedJobs(1, None, None, ANY)
        await run_next(worker, "answer")
        assert await state(sandbox, run) == "completed"


async def test_an_attempt_is_counted_at_its_claim(open_sandbox: OpenSandbox) -> None:
    pipeline = make_flaky_step(Retry(0), failures=0)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        assert (await only_job(sandbox)).attempt == 0
        await worker.claim()
        assert (await only_job(sandbox)).attempt == 1


async def test_items_retry_on_their_own(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("items", inputs=Batch)

    @pipeline.each("documents", retry=Retry(1, delays=[10], jitter=0))
    async def label(document: str, *, ctx: Context) -> int:
        if document == "b" and ctx.attempt == 1:
            raise OSError("b is shy")
        return ctx.attempt

    @pipeline.step
    async def report(label: Items[int]) -> list[int]:
        return list(label)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert (run.state, run.results["report"]) == ("completed", [1, 2, 1])


async def test_only_the_named_errors_are_retried(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("named")

    @pipeline.step(retry=Retry(3, on=OSError, delays=[1]))
    async def answer(*, ctx: Context) -> int:
        raise OSError("away") if ctx.attempt == 1 else ValueError("wrong")

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        job = await only_job(sandbox)
        assert (await sandbox.client.runs.get_errors(run.id))["answer", ""]["message"] == "wrong"
    assert (run.state, job.attempt) == ("failed", 2)


async def test_give_up_ends_a_series_of_retries(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("gives-up")

    @pipeline.step(retry=Retry(9, delays=[1]))
    async def answer(*, ctx: Context) -> int:
        if ctx.attempt == 2:
            raise GiveUp("enough")
        raise OSError("away")

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        job = await only_job(sandbox)
    assert (run.state, job.attempt, job.code) == ("failed", 2, "GAVE_UP")


async def test_asking_to_wait_uses_neither_an_attempt_nor_a_retry(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("waits")
    requests: list[int] = []

    @pipeline.step(retry=Retry(0))
    async def answer(*, ctx: Context) -> int:
        requests.append(ctx.attempt)
        if len(requests) <= 5:
            raise RetryLater(timedelta(minutes=1), "too many requests")
        return ctx.attempt

    async with open_sandbox(pipeline) as sandbox:
        before = await sandbox.clock.now()
        run = await sandbox.run(pipeline)
        assert await sandbox.clock.now() - before == timedelta(minutes=5)
        assert (await only_job(sandbox)).attempt == 1
    assert (run.state, requests) == ("completed", [1] * 6)


async def test_a_job_that_asked_to_wait_reports_it(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("waits")

    @pipeline.step
    async def answer() -> int:
        raise RetryLater(timedelta(minutes=1), "too many requests")

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "answer")
        job = await only_job(sandbox)
        assert (job.state, job.code, job.attempt) == ("ready", "RETRY_LATER", 0)
        (_, event) = await sandbox.client.runs.list_events(run)
        assert (event.kind, event.attempt, event.data["message"]) == ("retry", 1, "too many requests")


async def test_a_wait_may_be_in_seconds(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("seconds")

    @pipeline.step
    async def answer() -> int:
        raise RetryLater(30, "too many requests")

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        await run_next(worker, "answer")
        assert (await only_job(sandbox)).ready_at == await sandbox.clock.now() + seconds(30)


async def test_a_worker_death_uses_no_retry(open_sandbox: OpenSandbox) -> None:
    pipeline = make_flaky_step(Retry(1, delays=[1]), failures=1)
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        async with sandbox.manual_worker() as dying:
            assert len(await dying.claim()) == 1
            await pass_heartbeat_timeout(sandbox)
            await sandbox.work()
            assert await state(sandbox, run) == "completed"
            assert (await only_job(sandbox)).attempt == 3


async def test_a_delay_of_a_year_is_kept(open_sandbox: OpenSandbox) -> None:
    pipeline = make_flaky_step(Retry(2, delays=[timedelta(days=365)], jitter=0), failures=2)
    async with open_sandbox(pipeline) as sandbox:
        before = await sandbox.clock.now()
        run = await sandbox.run(pipeline)
        assert await sandbox.clock.now() - before == timedelta(days=730)
    assert run.state == "completed"


async def test_every_retry_is_recorded_as_an_event(open_sandbox: OpenSandbox) -> None:
    pipeline = make_flaky_step(Retry(2, delays=[1]), failures=2)
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert await kinds(sandbox, run.id) == ["start", "retry answer", "retry answer", "result answer", "end"]
        events = await sandbox.client.runs.list_events(run.id)
    assert [event.attempt for event in events] == [None, 1, 2, 3, None]
    assert events[1].data["message"] == "failed 1 of 2"


async def test_a_retry_in_the_middle_of_a_chain_continues_from_there(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("chain")
    called: list[str] = []

    @pipeline.step
    async def first() -> int:
        called.append("first")
        return 1

    @pipeline.step(retry=Retry(1, delays=[5]))
    async def second(first: int, *, ctx: Context) -> int:
        called.append("second")
        if ctx.attempt == 1:
            raise OSError("away")
        return first + 1

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        kept = await worker.record_outcomes(await worker.attempt(await worker.claim()), limit=1)
        await run_claims(worker, kept, "second")
        await sandbox.work()
        (run,) = await sandbox.client.runs.list()
        assert await sandbox.client.runs.get_results(run.id) == {"first": 1, "second": 2}
    assert called == ["first", "second", "second"]


def make_flaky_step(retry: Retry, failures: int) -> Pipeline:
    pipeline = Pipeline("flaky")
    failed: list[int] = []

    @pipeline.step(retry=retry)
    async def answer() -> int:
        if len(failed) < failures:
            failed.append(1)
            raise OSError(f"failed {len(failed)} of {failures}")
        return 42

    return pipeline


async def only_job(sandbox: Sandbox) -> Job:
    (run,) = await sandbox.client.runs.list()
    (job,) = await sandbox.client.runs.list_jobs(run.id)
    return job
