"""The worker in this process, on a real database: what it claims, returns, loses and takes over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from retoma import Context, Pipeline, Retry, RetryLater, Settings, fixed_delay, logs, seconds
from retoma.engine.claim_protocol import WorkerLink
from retoma.engine.outcomes import Returned
from retoma.errors import DatabaseUnavailable
from retoma.identifiers import ClaimKey
from retoma.records import Job
from retoma.store import workers
from retoma.store.database import DedicatedConnection
from retoma.testing import Sandbox
from retoma.worker import executor, worker_session
from retoma.worker.executor import Executor
from retoma.worker.worker import Worker
from tests.conftest import OpenSandbox
from tests.engine.builders import pass_heartbeat_timeout, value
from tests.engine.test_leases import killed_worker
from tests.wait_timeout import WAIT_TIMEOUT

SOON = timedelta(seconds=WAIT_TIMEOUT)


@asynccontextmanager
async def run_worker(
    sandbox: Sandbox,
    *,
    concurrency: int = 4,
    drain_seconds: float = 10.0,
    heartbeat_timeout: float = 6.0,
    on_blocked: Callable[[], None] = lambda: None,
) -> AsyncIterator[Worker]:
    """A worker on the sandbox's database, drained at the end."""
    settings = Settings(drain_seconds=drain_seconds, heartbeat_timeout_seconds=heartbeat_timeout)
    worker = Worker(sandbox.app, sandbox.database, settings, concurrency=concurrency, on_blocked=on_blocked)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(task, SOON.total_seconds())


async def wait_until(holds: Callable[[], Awaitable[Any]]) -> Any:
    """Return the result of `holds` once it is truthy."""
    async with asyncio.timeout(SOON.total_seconds()):
        while not (found := await holds()):  # noqa: ASYNC110  (it happens in the database)
            await asyncio.sleep(0.01)
        return found


async def only_job(sandbox: Sandbox) -> Job:
    (run,) = await sandbox.client.runs.list()
    (job,) = await sandbox.client.runs.list_jobs(run.id)
    return job


async def test_async_and_plain_functions_are_run(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("both")

    @pipeline.step
    async def on_the_loop() -> str:
        return threading.current_thread().name

    @pipeline.step
    def in_a_thread(on_the_loop: str) -> str:
        return threading.current_thread().name

    async with open_sandbox(pipeline) as sandbox, run_worker(sandbox):
        results = await sandbox.client.run(pipeline)
    assert results == {"on_the_loop": "MainThread", "in_a_thread": "retoma-step"}


async def test_a_stopping_worker_lets_its_jobs_finish(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("slow")
    began, go_on = asyncio.Event(), asyncio.Event()

    @pipeline.step
    async def slow() -> str:
        began.set()
        await go_on.wait()
        return "done"

    async with open_sandbox(pipeline) as sandbox:
        async with run_worker(sandbox) as worker:
            await sandbox.client.start(pipeline)
            await began.wait()
            worker.stop()
            go_on.set()
        job = await only_job(sandbox)
        assert (job.state, job.output) == ("succeeded", "done")
        assert await sandbox.client.workers.list() == []


async def test_jobs_that_outlast_the_drain_are_returned_and_use_no_retry(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("endless")
    began = asyncio.Event()

    @pipeline.step
    async def endless() -> None:
        began.set()
        await asyncio.Event().wait()

    async with open_sandbox(pipeline) as sandbox:
        async with run_worker(sandbox, drain_seconds=0.0):
            await sandbox.client.start(pipeline)
            await began.wait()
        job = await only_job(sandbox)
        assert (job.state, job.attempt, job.code) == ("ready", 1, "INTERRUPTED")


async def test_dropped_jobs_are_never_returned_as_unstarted(open_sandbox: OpenSandbox) -> None:
    """Its attempt would be counted again, and the same attempt could run twice."""
    pipeline = Pipeline("begun")

    @pipeline.step
    async def endless() -> None:
        await asyncio.Event().wait()

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        claims = await worker.claim()
        workload = Executor(worker._runner, 1, asyncio.Event())
        workload.take(claims)
        workload.drop()
        workload.take(claims)  # as they are found after a lost answer
        assert workload.collect() == []
        assert workload.is_idle


async def test_a_job_that_ignores_its_interruption_does_not_delay_the_shutdown(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("deaf")
    began, released = asyncio.Event(), asyncio.Event()

    @pipeline.step
    async def deaf() -> None:
        began.set()
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    async with open_sandbox(pipeline) as sandbox:
        async with run_worker(sandbox, drain_seconds=0.0):
            await sandbox.client.start(pipeline)
            await began.wait()
        released.set()
        assert (await only_job(sandbox)).state == "ready"


async def test_a_stopping_worker_exits_though_the_database_is_unreachable(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its jobs are released after the heartbeat timeout."""
    pipeline = Pipeline("result")
    began = asyncio.Event()

    @pipeline.step
    async def result() -> None:
        began.set()
        await asyncio.Event().wait()

    async def away(*_: Any, **__: Any) -> Any:
        raise ConnectionResetError("the database is unreachable")

    async def unavailable(*_: Any, **__: Any) -> Any:
        raise DatabaseUnavailable("the database is unreachable")

    monkeypatch.setattr(worker_session, "INTERRUPT_GRACE", 0.0)
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)
        worker = Worker(sandbox.app, sandbox.database, Settings())
        working = asyncio.create_task(worker.run())
        await began.wait()
        with monkeypatch.context() as outage:
            outage.setattr(DedicatedConnection, "fetch", away)
            outage.setattr(workers, "deregister_worker", unavailable)
            worker.stop_at_once()
            await asyncio.wait_for(working, WAIT_TIMEOUT)
        assert (await only_job(sandbox)).state == "running"
        await pass_heartbeat_timeout(sandbox)
        assert (await only_job(sandbox)).state == "ready"


async def test_a_worker_declared_dead_continues_under_a_new_id(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("twice")
    attempts: list[int] = []
    began = asyncio.Event()

    @pipeline.step
    async def twice(*, ctx: Context) -> int:
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            began.set()
            await asyncio.Event().wait()
        return ctx.attempt

    async with open_sandbox(pipeline) as sandbox, run_worker(sandbox):
        started = await sandbox.client.start(pipeline)
        await began.wait()
        (before,) = await sandbox.client.workers.list()
        assert await value(sandbox, "select retoma.deregister_worker($1, 'died', 'WORKER_DIED')", before.id) == 1
        run = await sandbox.client.wait(started.id, SOON)
        (after,) = await sandbox.client.workers.list()
        assert run.state == "completed"
        assert attempts == [1, 2]
        assert after.id > before.id


async def test_a_long_running_suspect_no_longer_blocks_the_others(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "SUSPECT_TRIAL", 0.0)
    pipeline, all_there = Pipeline("together"), asyncio.Barrier(3)

    @pipeline.step
    async def met() -> None:
        await all_there.wait()

    async with open_sandbox(pipeline) as sandbox, killed_worker(sandbox) as dying:
        started = await sandbox.client.start_many(pipeline, [None] * 3)
        await dying.claim(3)
        await pass_heartbeat_timeout(sandbox)
        async with run_worker(sandbox):
            for run in started:
                assert (await sandbox.client.wait(run.id, SOON)).state == "completed"


@pytest.mark.parametrize("deaths", [1, 2])
async def test_only_a_suspect_with_one_death_is_trusted_before_it_ends(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    monkeypatch.setattr(executor, "SUSPECT_TRIAL", 0.0)
    pipeline, began = Pipeline("trial"), asyncio.Event()

    @pipeline.step
    async def tried() -> None:
        began.set()
        await asyncio.Event().wait()

    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)
        for _ in range(deaths):
            async with killed_worker(sandbox) as dying:
                await dying.claim()
                await pass_heartbeat_timeout(sandbox)
        async with sandbox.manual_worker() as worker:
            held = Executor(worker._runner, concurrency=1, changed=asyncio.Event())
            held.take(await worker.claim())
            assert held.has_suspect
            await began.wait()
            later = asyncio.Event()
            asyncio.get_running_loop().call_later(0.0, later.set)  # after the trial's own timer
            await later.wait()
            assert held.has_suspect == (deaths == 2)
            held.drop()


async def test_jobs_claimed_by_a_call_whose_answer_was_lost_are_run(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline("lost")
    attempts: list[int] = []

    @pipeline.step
    async def first(*, ctx: Context) -> int:
        attempts.append(ctx.attempt)
        return 1

    @pipeline.step
    async def second(first: int, *, ctx: Context) -> int:
        attempts.append(ctx.attempt)
        return first + 1

    lost = lose_every_other_answer(monkeypatch)
    async with open_sandbox(pipeline) as sandbox, run_worker(sandbox):
        results = await asyncio.wait_for(sandbox.client.run(pipeline), SOON.total_seconds())
    assert results == {"first": 1, "second": 2}
    assert attempts == [1, 1]
    assert lost


def lose_every_other_answer(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commits as ever, but the connection is cut before the answer of an exchange arrives."""
    lost: list[str] = []
    fetch = WorkerLink._fetch

    class CutLink:
        def __init__(self, link: Any) -> None:
            self._link = link
            self._calls = 0

        async def call(self, noun: str, statement: str, *rest: Any) -> Any:
            rows = await self._link.call(noun, statement, *rest)
            self._calls += 1
            if statement == "finish_and_claim" and self._calls % 2:
                lost.append(statement)
                raise ConnectionResetError("the connection was cut before the answer")
            return rows

        async def close(self) -> None:
            await self._link.close()

    async def with_cuts(lane: WorkerLink, name: str, arguments: list[Any]) -> Any:
        if not isinstance(lane._link, CutLink):
            lane._link = CutLink(lane._link)  # type: ignore[assignment]
        return await fetch(lane, name, arguments)

    monkeypatch.setattr(WorkerLink, "_fetch", with_cuts)
    return lost


async def test_a_thread_that_outlives_its_timeout_is_replaced(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("hung")
    release = threading.Event()

    @pipeline.step(timeout=seconds(0.05), retry=Retry(0), on_failure="continue")
    def hung() -> None:
        release.wait()

    @pipeline.step(after=[hung])
    def next_in_line() -> str:
        return "ran"

    async with open_sandbox(pipeline) as sandbox, run_worker(sandbox, concurrency=1):
        started = await sandbox.client.start(pipeline)
        run = await sandbox.client.wait(started.id, SOON)
        errors = await sandbox.client.runs.get_errors(run.id)
        release.set()
    assert run.state == "completed_with_errors"
    assert errors["hung", ""]["code"] == "TIMEOUT"
    assert "still running after 0.05 s" in errors["hung", ""]["message"]


async def test_a_value_that_the_database_cannot_store_fails_alone_and_is_logged(
    open_sandbox: OpenSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = Pipeline("unrecordable")

    @pipeline.step(on_failure="continue", retry=Retry(1, backoff=fixed_delay(timedelta(days=999_000_000)), jitter=0))
    async def forever() -> None:
        raise RuntimeError("later")

    @pipeline.step
    async def other() -> str:
        return "fine"

    async with open_sandbox(pipeline) as sandbox, run_worker(sandbox):
        started = await sandbox.client.start(pipeline)
        run = await sandbox.client.wait(started.id, SOON)
        jobs = {job.step: (job.state, job.code) for job in await sandbox.client.runs.list_jobs(run.id)}
    assert jobs == {"forever": ("failed", "UNRECORDABLE"), "other": ("succeeded", None)}
    (failed,) = [vars(record) for record in caplog.records if vars(record).get("event") == "job_failed"]
    assert (failed["tenant"], failed["step"], failed["code"]) == ("default", "forever", "UNRECORDABLE")


@pytest.mark.parametrize("wanted", [timedelta(days=8000 * 365), timedelta.max])
async def test_a_step_that_asks_for_an_endless_wait_is_retried_after_a_year(
    open_sandbox: OpenSandbox, wanted: timedelta
) -> None:
    pipeline = Pipeline("endless")

    @pipeline.step
    async def forever() -> None:
        raise RetryLater(wanted)

    async with open_sandbox(pipeline) as sandbox:
        started = await sandbox.client.start(pipeline)
        await sandbox.work(advance_clock=False)
        (wait,) = await sandbox.client.runs.list_waits(started.id)
        now = await sandbox.client.now()
    assert wait.until == now + timedelta(days=365)


async def test_a_running_step_is_notified_of_a_cancel(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("cancelled")
    began = asyncio.Event()
    reported: list[str] = []

    @pipeline.step
    async def waiting() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reported.append("cancelled")
            raise

    async with open_sandbox(pipeline) as sandbox, run_worker(sandbox):
        started = await sandbox.client.start(pipeline)
        await began.wait()
        assert await sandbox.client.runs.cancel(started.id) == "cancelling"
        assert (await sandbox.client.wait(started.id, SOON)).state == "cancelled"
    assert reported == ["cancelled"]


async def test_prefetched_jobs_are_returned_when_the_worker_stops(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("many")
    began, go_on = asyncio.Event(), asyncio.Event()

    @pipeline.step
    async def one() -> None:
        began.set()
        await go_on.wait()

    async with open_sandbox(pipeline) as sandbox:
        async with run_worker(sandbox, concurrency=2) as worker:
            await sandbox.client.start_many(pipeline, [None] * 10)
            await began.wait()
            worker.stop()
            go_on.set()
        jobs = [job for run in await sandbox.client.runs.list() for job in await sandbox.client.runs.list_jobs(run.id)]
    done = [job for job in jobs if job.state == "succeeded"]
    untouched = [job for job in jobs if job.state == "ready" and job.attempt == 0]
    assert done
    assert len(done) + len(untouched) == 10


async def test_prefetched_jobs_are_released_when_earlier_ones_take_long(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "PREFETCH_STALL", 0.0)
    async with claim_ahead(open_sandbox) as (held, reported):
        held._mean_seconds = 0.0001
        assert held.free_capacity > 0
        await reported.wait()
        assert [type(outcome) for outcome in held.collect()] == [Returned, Returned]
        assert held.free_capacity == 0


async def test_unwanted_unstarted_jobs_are_returned_at_once(open_sandbox: OpenSandbox) -> None:
    async with claim_ahead(open_sandbox) as (held, _):
        held.cancel(set(held.running_jobs[1:2]))
        assert [type(outcome) for outcome in held.collect()] == [Returned]
        assert len(held.running_jobs) == 2


@asynccontextmanager
async def claim_ahead(open_sandbox: OpenSandbox) -> AsyncIterator[tuple[Executor, asyncio.Event]]:
    """One running job that never ends, and two behind it."""
    pipeline, reported = Pipeline("slow"), asyncio.Event()

    @pipeline.step
    async def endless() -> None:
        await asyncio.Event().wait()

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker, asyncio.timeout(WAIT_TIMEOUT):
        await sandbox.client.start_many(pipeline, [None] * 3)
        held = Executor(worker._runner, concurrency=1, changed=reported)
        held.take(await worker.claim(3))
        yield held, reported
        held.drop()


async def test_a_worker_learns_which_of_its_jobs_are_unwanted(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("three")

    @pipeline.step
    async def one() -> int:
        return 1

    async with open_sandbox(pipeline) as sandbox, killed_worker(sandbox) as worker:
        started = await sandbox.client.start_many(pipeline, [None] * 2)
        claims = {claim.run: claim.key for claim in await worker.claim(2)}
        wanted, cancelled = (claims[run.id] for run in started)

        async def unwanted() -> set[ClaimKey]:
            return await workers.find_unwanted(sandbox.database, worker.worker, [wanted, cancelled])

        assert await unwanted() == set()
        await sandbox.client.runs.cancel(started[1].id)
        assert await unwanted() == {cancelled}
        await pass_heartbeat_timeout(sandbox)  # and its jobs are another's
        assert await unwanted() == {wanted, cancelled}


async def test_jobs_running_alongside_a_stopping_failure_are_not_unwanted(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("beside", retry=Retry(0))

    @pipeline.step
    async def bad() -> int:
        raise ValueError

    @pipeline.step
    async def good() -> int:
        return 1

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        claims = {claim.step: claim for claim in await worker.claim(2)}
        await worker.record_outcomes(await worker.attempt([claims["bad"]]))
        assert await workers.find_unwanted(sandbox.database, worker.worker, [claims["good"].key]) == set()


async def test_work_is_found_without_notifications(open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline("polled")

    @pipeline.step
    async def answer() -> int:
        return 42

    async with open_sandbox(pipeline) as sandbox:
        monkeypatch.setattr(sandbox.database, "pooled", True)
        async with run_worker(sandbox):
            assert await sandbox.client.run(pipeline) == {"answer": 42}


async def test_a_step_that_is_no_longer_defined_waits_with_its_cause(open_sandbox: OpenSandbox) -> None:
    yesterday, today = Pipeline("changing"), Pipeline("changing")

    @yesterday.step
    async def old_name() -> int:
        return 1

    @today.step
    async def new_name() -> int:
        return 2

    async with open_sandbox(yesterday) as before:
        await before.client.start(yesterday)
    async with open_sandbox(today) as after:
        async with run_worker(after):

            async def held_back() -> bool:
                return (await only_job(after)).code == "UNDEFINED_STEP"

            await wait_until(held_back)
        job = await only_job(after)
        assert job.state == "ready"
        assert job.ready_at == await after.clock.now() + timedelta(seconds=30)


async def test_a_step_that_blocks_the_loop_loses_its_worker_and_gets_advice(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("retoma.worker.executor.MAX_BLOCK_SECONDS", 0.2)
    fetch = DedicatedConnection.fetch

    async def patient(
        link: DedicatedConnection, statement: Any, arguments: list[Any], timeout: float = WAIT_TIMEOUT
    ) -> Any:
        """With such a frequent heartbeat the timeout is short, and the worker is given up only once."""
        return await fetch(link, statement, arguments, WAIT_TIMEOUT)

    monkeypatch.setattr(DedicatedConnection, "fetch", patient)
    pipeline = Pipeline("blocking")
    given_up = threading.Event()
    attempts: list[int] = []

    @pipeline.step(timeout=seconds(0.1), retry=Retry(0))
    async def blocking(*, ctx: Context) -> int:
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            given_up.wait(SOON.total_seconds())  # on the loop, where nothing can interrupt it
        return ctx.attempt

    async with open_sandbox(pipeline) as sandbox, run_worker(sandbox, heartbeat_timeout=0.3, on_blocked=given_up.set):
        started = await sandbox.client.start(pipeline)
        run = await sandbox.client.wait(started.id, SOON)
        job = await only_job(sandbox)
        (error,) = (await sandbox.client.runs.get_errors(run.id)).values()
    assert (run.state, attempts, job.worker_deaths) == ("completed", [1, 2], 1)
    assert error["message"] == "a step blocked the event loop of its worker: make that step a plain def"
    (line,) = [record for record in caplog.records if vars(record).get("event") == "event_loop_blocked"]
    assert "define it with `def` instead of `async def`" in line.getMessage()


async def test_a_handler_without_field_support_gets_the_fields_in_the_line(
    open_sandbox: OpenSandbox, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_IS_CONFIGURED", False)
    pipeline = Pipeline("film", retry=Retry(0))

    @pipeline.step
    def script() -> str:
        raise KeyError("v1")

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith("job_failed  an attempt failed, and no worker will retry it  tenant=default ")
    assert f"run={run.id} step=script attempt=1" in line
    assert "KeyError: 'v1'" in line
