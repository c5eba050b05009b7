from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from retoma import App, Context, Pipeline, PollResult, Pool, Retry, RetryLater, hours, minutes, seconds
from retoma.define.pipeline import DEFAULT_STUCK_AFTER
from retoma.engine import watchdog
from retoma.errors import DefinitionError, InvalidInput, NotFound, ProviderRejected, RunBusy
from retoma.identifiers import new_run_id
from retoma.records import WaitReason
from retoma.store import workers
from retoma.testing import NOON, ManualWorker, Sandbox, sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import HEARTBEAT_TIMEOUT, kinds, run_claims, run_next, send_heartbeat, state, states

TIMEOUT = minutes(2)


def lines(**options: object) -> Pipeline:
    pipeline = Pipeline("lines", timeout=TIMEOUT, **options)  # type: ignore[arg-type]

    @pipeline.step
    def texts() -> list[str]:
        return ["a", "b"]

    @pipeline.each(texts)
    def line(text: str) -> str:
        return text

    return pipeline


async def run_watchdog(sandbox: Sandbox, after: timedelta, *alive: ManualWorker) -> int:
    await sandbox.clock.advance(after)
    for worker in alive:
        await send_heartbeat(sandbox.database, worker.worker)
    return await watchdog.check_due_runs(sandbox.database, HEARTBEAT_TIMEOUT)


async def start_with_held_item(sandbox: Sandbox, pipeline: Pipeline, worker: ManualWorker) -> UUID:
    """A run with one finished item, whose other item is held by a running worker."""
    run = (await sandbox.client.start(pipeline)).id
    await run_next(worker, "texts")
    claims = await worker.claim(2)
    await run_claims(worker, claims, "line:a")
    return run


async def test_a_worker_counts_however_many_newer_ones_serve_other_queues(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as manual_worker:
        for number in range(100):
            await workers.register_worker(sandbox.database, f"other-{number}", ["other"], 1, 1)
        run = (await sandbox.client.start(pipeline)).id
        assert [wait.reason for wait in await sandbox.client.runs.list_waits(run)] == [WaitReason.NOT_CLAIMED]
        assert manual_worker.worker in {worker.id for worker in await sandbox.client.workers.list()}


async def test_a_run_that_no_worker_serves_is_stuck_and_continues_automatically(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await run_watchdog(sandbox, minutes(5) - seconds(1))
        assert await state(sandbox, run) == "running"
        await run_watchdog(sandbox, seconds(1))
        assert await state(sandbox, run) == "stuck"
        (stuck,) = await sandbox.client.runs.list_stuck()
        assert (stuck.run, stuck.cause, stuck.data["queue"]) == (run, "no_worker", "default")
        assert "start one: retoma worker" in stuck.data["explanation"]

        for _ in range(20):  # it does not fail while it waits for somebody to start a worker
            await run_watchdog(sandbox, minutes(1))
        assert await state(sandbox, run) == "stuck"
        await sandbox.work()
        assert await state(sandbox, run) == "completed"
        assert await sandbox.client.runs.list_stuck() == []


async def test_a_returning_worker_ends_the_stuck_episode_before_any_action(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await run_watchdog(sandbox, minutes(5))
        async with sandbox.manual_worker() as worker:
            await run_next(worker, "texts")
            await run_watchdog(sandbox, seconds(5), worker)
            assert await state(sandbox, run) == "running"
            assert (await kinds(sandbox, run))[-2:] == ["result texts", "resume"]


async def test_a_stuck_run_that_ends_before_the_next_check_is_recorded_as_resumed_first(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await run_watchdog(sandbox, minutes(5))
        await sandbox.work()
        assert await state(sandbox, run) == "completed"
        assert (await kinds(sandbox, run))[-2:] == ["resume", "end"]


async def test_a_job_that_is_held_beyond_its_time_makes_its_run_stuck(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = await start_with_held_item(sandbox, pipeline, worker)
        await run_watchdog(sandbox, minutes(5), worker)
        (stuck,) = await sandbox.client.runs.list_stuck(run=run)
        assert (stuck.cause, stuck.data["step"], stuck.data["item"]) == ("no_progress", "line", "b")
        assert (stuck.data["last_item"], stuck.data["worker"]) == ("a", worker.worker)
        assert "stuck line:b" in await kinds(sandbox, run)


async def test_a_stuck_run_is_resumed_after_five_seconds_and_its_held_jobs_run_elsewhere(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker, sandbox.manual_worker() as others:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "texts")
        claims = await worker.claim(2)
        await run_watchdog(sandbox, minutes(5), worker, others)
        assert await run_watchdog(sandbox, seconds(4.9), worker, others) == 0
        await run_watchdog(sandbox, seconds(0.1), worker, others)
        assert await state(sandbox, run) == "running"
        await run_next(others, "line:a", "line:b")
        assert await state(sandbox, run) == "completed"
        await run_claims(worker, claims)
        assert worker.rejected_outcomes == 2


async def test_a_stuck_run_fails_after_the_maximum_number_of_resumes(open_sandbox: OpenSandbox) -> None:
    pipeline = lines(resumes=2)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = await start_with_held_item(sandbox, pipeline, worker)
        await run_watchdog(sandbox, minutes(5), worker)
        for pause in (5, 10):
            await run_watchdog(sandbox, seconds(pause), worker)
            assert await state(sandbox, run) == "running"
            assert await worker.claim(2)
            await run_watchdog(sandbox, minutes(5), worker)
            assert await state(sandbox, run) == "stuck"
        (stuck,) = await sandbox.client.runs.list_stuck()
        assert (stuck.resumes, stuck.max_resumes) == (2, 2)
        await run_watchdog(sandbox, minutes(1), worker)
        assert await state(sandbox, run) == "failed"
        assert await states(sandbox, run) == {"texts": "succeeded", "line:a": "succeeded", "line:b": "cancelled"}


async def test_manual_resumes_do_not_count_as_automatic_ones(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = await start_with_held_item(sandbox, pipeline, worker)
        await run_watchdog(sandbox, minutes(5), worker)
        await run_watchdog(sandbox, seconds(5), worker)
        assert await sandbox.client.runs.count_resumes(run) == 1
        await worker.claim(2)
        await run_watchdog(sandbox, minutes(5), worker)
        await sandbox.client.runs.resume(run)
        assert await sandbox.client.runs.count_resumes(run) == 0


async def test_a_provider_rejection_makes_a_run_stuck_and_names_the_pool(open_sandbox: OpenSandbox) -> None:
    pipeline, pool = Pipeline("refused"), Pool("paid", capacity=1)

    @pipeline.step(pool=pool)
    def asked() -> None:
        raise ProviderRejected("no credit")

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await worker.record_outcomes(await worker.attempt(await worker.claim()))
        await run_watchdog(sandbox, minutes(5), worker)
        (stuck,) = await sandbox.client.runs.list_stuck(run=run)
        assert (stuck.cause, stuck.data["pool"]) == ("provider_rejected", "paid")
        assert "until" in stuck.data
        assert [event.kind for event in await sandbox.client.runs.list_events(run, kinds=["stuck"])] == ["stuck"]


async def test_a_stuck_run_reports_the_error_of_the_attempt_before_the_held_one(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("hung", timeout=TIMEOUT)

    @pipeline.step(retry=Retry(1, delays=[0]))
    def asked() -> None:
        raise ValueError("no page 3")

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        await worker.record_outcomes(await worker.attempt(await worker.claim()))
        await worker.claim()
        await run_watchdog(sandbox, minutes(5), worker)
        (stuck,) = await sandbox.client.runs.list_stuck()
        assert (stuck.cause, stuck.data["message"]) == ("no_progress", "no page 3")
        assert "ValueError" in stuck.data["stack"]


async def test_progress_restarts_the_timeout(open_sandbox: OpenSandbox) -> None:
    pipeline = lines(resumes=1)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "texts")
        await worker.claim(2)
        await run_watchdog(sandbox, minutes(5), worker)
        await run_watchdog(sandbox, seconds(5), worker)
        claims = await worker.claim(2)
        await run_claims(worker, claims, "line:a")
        await run_watchdog(sandbox, minutes(5), worker)
        (stuck,) = await sandbox.client.runs.list_stuck()
        assert (stuck.run, stuck.resumes) == (run, 0)


async def test_a_person_can_resume_a_run_after_the_automatic_resumes_are_spent(open_sandbox: OpenSandbox) -> None:
    pipeline = lines(resumes=0)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = await start_with_held_item(sandbox, pipeline, worker)
        await run_watchdog(sandbox, minutes(5), worker)
        await run_watchdog(sandbox, minutes(1), worker)
        assert await state(sandbox, run) == "failed"
        assert await sandbox.client.runs.resume(run, by="ana") == "running"
        assert await run_next(worker, "line:b")
        assert await state(sandbox, run) == "completed"


async def test_fifty_concurrent_resumes_count_once_and_get_the_same_answer(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = await start_with_held_item(sandbox, pipeline, worker)
        await run_watchdog(sandbox, minutes(5), worker)
        assert set(await asyncio.gather(*(sandbox.client.runs.resume(run) for _ in range(50)))) == {"running"}
        assert (await kinds(sandbox, run)).count("resume") == 1


async def test_a_successful_run_cannot_be_resumed(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        with pytest.raises(RunBusy, match="is completed: only a run that is stuck or has failed"):
            await sandbox.client.runs.resume(run.id)
        with pytest.raises(NotFound):
            await sandbox.client.runs.resume(new_run_id())


async def test_a_job_within_its_time_limit_is_not_stuck(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("long", timeout=hours(2))

    @pipeline.step
    def film() -> int:
        return 1

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await worker.claim(1)
        await run_watchdog(sandbox, hours(2), worker)
        assert await state(sandbox, run) == "running"
        await run_watchdog(sandbox, minutes(5), worker)
        assert await state(sandbox, run) == "stuck"


async def test_waiting_for_delays_capacity_or_external_work_is_not_stuck(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("waits")

    @pipeline.step(queue="delayed")
    def delayed() -> int:
        raise RetryLater(hours(10))

    @pipeline.step(queue="pooled", pool=Pool("none", capacity=0))
    def pooled() -> int:
        return 1

    @pipeline.step(queue="outside", timeout=hours(20))
    async def rendered(*, host: Host, ctx: Context) -> int:
        return int(await ctx.external(lambda: "handle", poll=host.status))

    for queue in ("delayed", "pooled", "outside"):
        async with open_sandbox(pipeline, resources={"host": Host()}) as sandbox, sandbox.manual_worker() as worker:
            run = (await sandbox.client.start(pipeline)).id
            await run_claims(worker, await worker.claim(10, queues=[queue]))
            await run_watchdog(sandbox, hours(1), worker)
            assert await state(sandbox, run) == "running"


async def test_external_work_that_no_worker_polls_is_stuck_until_one_does(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("rendered")

    @pipeline.step(timeout=hours(20))
    async def rendered(*, host: Host, ctx: Context) -> int:
        return int(await ctx.external(lambda: "handle", poll=host.status))

    async with open_sandbox(pipeline, resources={"host": Host()}) as sandbox:
        async with sandbox.manual_worker() as worker:
            run = (await sandbox.client.start(pipeline)).id
            await run_claims(worker, await worker.claim(10))
            (wait,) = await sandbox.client.runs.list_waits(run)
            assert wait.reason == "external_work"
        (wait,) = await sandbox.client.runs.list_waits(run)
        assert wait.reason == "no_worker"
        await run_watchdog(sandbox, minutes(5))
        assert await state(sandbox, run) == "stuck"
        async with sandbox.manual_worker():
            await run_watchdog(sandbox, seconds(5))
            assert await state(sandbox, run) == "running"


async def test_external_work_is_stuck_while_only_another_application_has_workers(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("rendered")

    @pipeline.step(timeout=hours(20))
    async def rendered(*, host: Host, ctx: Context) -> int:
        return int(await ctx.external(lambda: "handle", poll=host.status))

    other = App("other", pipelines=[lines()])
    async with open_sandbox(pipeline, resources={"host": Host()}) as mine:
        async with mine.manual_worker() as worker:
            run = (await mine.client.start(pipeline)).id
            await run_claims(worker, await worker.claim(10))
        async with sandbox(other, mine.database) as theirs, theirs.manual_worker() as others:
            (wait,) = await mine.client.runs.list_waits(run)
            assert wait.reason == "no_worker"
            await run_watchdog(mine, minutes(5), others)
            assert await state(mine, run) == "stuck"
            async with mine.manual_worker():
                await run_watchdog(mine, seconds(5), others)
                assert await state(mine, run) == "running"


async def test_a_ready_job_reports_that_only_another_application_has_workers(open_sandbox: OpenSandbox) -> None:
    other = Pipeline("other")

    @other.step
    def nothing() -> None: ...

    async with open_sandbox(lines()) as mine:
        run = (await mine.client.start("lines")).id
        async with sandbox(App("other", pipelines=[other]), mine.database) as theirs, theirs.manual_worker():
            assert [wait.reason for wait in await mine.client.runs.list_waits(run)] == ["no_worker"]


class Host:
    async def status(self, external_id: str) -> PollResult:
        return PollResult("running")


async def test_a_scheduled_run_is_not_watched(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox:
        at = await sandbox.clock.now() + hours(10)
        run = (await sandbox.client.start(pipeline, run_at=at)).id
        await run_watchdog(sandbox, hours(9))
        assert await state(sandbox, run) == "pending"


async def test_two_watchdogs_detect_a_stuck_run_once(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await sandbox.clock.advance(minutes(5))
        await asyncio.gather(*(watchdog.check_due_runs(sandbox.database, HEARTBEAT_TIMEOUT) for _ in range(5)))
        assert (await kinds(sandbox, run)).count("stuck texts") == 1


async def test_a_start_may_set_its_own_number_of_resumes(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline, resumes=7)
        await worker.claim(1)
        await run_watchdog(sandbox, minutes(5), worker)
        (stuck,) = await sandbox.client.runs.list_stuck()
        assert stuck.max_resumes == 7


async def test_the_application_sets_when_a_run_is_stuck(open_sandbox: OpenSandbox) -> None:
    assert minutes(5) == DEFAULT_STUCK_AFTER
    pipeline = lines(stuck_after=seconds(30))
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await run_watchdog(sandbox, seconds(30))
        assert await state(sandbox, run) == "stuck"
        await sandbox.client.runs.cancel(run)
        assert await state(sandbox, run) == "cancelled"


def test_limits_are_checked_at_import() -> None:
    with pytest.raises(DefinitionError, match="stuck_after= is 0"):
        Pipeline("x", stuck_after=0)
    with pytest.raises(DefinitionError, match="resumes= is -1"):
        Pipeline("x", resumes=-1)


async def test_a_run_that_has_not_ended_by_its_deadline_fails(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline, deadline=minutes(2))).id
        await run_next(worker, "texts")
        await run_watchdog(sandbox, minutes(2) - seconds(1), worker)
        assert await state(sandbox, run) == "running"
        await run_watchdog(sandbox, seconds(1), worker)
        assert await state(sandbox, run) == "failed"
        assert (await sandbox.client.runs.get_errors(run))["", ""]["code"] == "DEADLINE"


async def test_a_run_that_fails_by_its_deadline_is_logged(
    open_sandbox: OpenSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline, deadline=minutes(2), tenant="ours")).id
        await run_watchdog(sandbox, minutes(2))
        await run_watchdog(sandbox, minutes(2))
    (records,) = [vars(record) for record in caplog.records if record.levelname == "ERROR"]
    assert records["event"] == "run_deadline_exceeded"
    assert (records["run"], records["pipeline"], records["tenant"]) == (str(run), "lines", "ours")


async def test_a_deadline_is_measured_from_when_the_run_is_due(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox:
        at = await sandbox.clock.now() + hours(1)
        run = (await sandbox.client.start(pipeline, run_at=at, deadline=minutes(2))).id
        await sandbox.clock.advance(hours(1))
        await sandbox.work(advance_clock=False)
        assert await state(sandbox, run) == "completed"


async def test_a_deadline_cancels_external_work(open_sandbox: OpenSandbox) -> None:
    class Renderer(Host):
        cancelled = False

        async def status(self, external_id: str) -> PollResult:
            return PollResult("cancelled" if self.cancelled else "running")

        async def cancel(self, handle: str) -> None:
            self.cancelled = True

    pipeline = Pipeline("film")

    @pipeline.step(timeout=hours(2))
    async def clip(*, host: Renderer, ctx: Context) -> int:
        return int(await ctx.external(lambda: "handle", poll=host.status, cancel=host.cancel))

    host = Renderer()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline, deadline=minutes(10))).id
        await run_next(worker, "clip")
        await run_watchdog(sandbox, minutes(10), worker)
        assert (await state(sandbox, run), host.cancelled) == ("running", False)
        await worker.poll_external_work()
        assert (await state(sandbox, run), host.cancelled) == ("failed", True)


async def test_a_rerun_run_has_its_whole_timeout(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline, deadline=minutes(2))).id
        await run_watchdog(sandbox, minutes(2), worker)
        await sandbox.client.runs.resume(run)
        await run_watchdog(sandbox, minutes(1), worker)
        assert await state(sandbox, run) == "running"
        await run_watchdog(sandbox, minutes(1), worker)
        assert await state(sandbox, run) == "failed"


async def test_limits_of_a_start_are_checked(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(lines()) as sandbox:
        with pytest.raises(InvalidInput, match="a deadline is above zero"):
            await sandbox.client.start("lines", deadline=minutes(0))
        with pytest.raises(InvalidInput, match="resumes must be a whole number"):
            await sandbox.client.start("lines", resumes=-1)


@pytest.mark.parametrize("year", [2020, 2040])
async def test_the_databases_clock_decides_when_a_run_is_stuck(open_sandbox: OpenSandbox, year: int) -> None:
    """The clock of this machine is years ahead of the database's, or behind it."""
    served_elsewhere = Pipeline("served_elsewhere")

    @served_elsewhere.step(queue="elsewhere")
    async def wait() -> int:
        return 1

    async with open_sandbox(served_elsewhere) as sandbox:
        start = NOON.replace(year=year)
        await sandbox.clock.set(start)
        run = (await sandbox.client.start(served_elsewhere)).id
        states = []
        for passed in (timedelta(0), minutes(4), minutes(6)):
            await sandbox.clock.set(start + passed)
            await sandbox.run_watchdog()
            states.append((await sandbox.client.runs.get(run)).state)
        assert states == ["running", "running", "stuck"]
