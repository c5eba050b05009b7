from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from retoma import (
    App,
    Context,
    Pipeline,
    PollResult,
    Pool,
    ProviderRejected,
    Retry,
    RetryLater,
    hours,
    minutes,
    seconds,
)
from retoma.define.pipeline import DEFAULT_STUCK_AFTER
from retoma.engine import watchdog
from retoma.errors import DefinitionError, InvalidInput, NotFound, RunBusy
from retoma.identifiers import new_run_id
from retoma.records import WaitReason
from retoma.store import workers
from retoma.testing import NOON, ManualWorker, Sandbox, sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import HEARTBEAT_TIMEOUT, kinds, run_claims, run_next, state, states

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
    for hands in alive:
        await workers.send_heartbeat(sandbox.database, hands.worker)
    return await watchdog.check_due_runs(sandbox.database, HEARTBEAT_TIMEOUT)


async def start_with_held_item(sandbox: Sandbox, pipeline: Pipeline, worker: ManualWorker) -> UUID:
    """A run with one item done, whose other is held by a worker that lives."""
    run = (await sandbox.client.start(pipeline)).id
    await run_next(worker, "texts")
    claims = await worker.claim(2)
    await run_claims(worker, claims, "line:a")
    return run


async def test_a_worker_counts_however_many_newer_ones_serve_other_queues(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands:
        for number in range(100):
            await workers.register_worker(sandbox.database, f"other-{number}", ["other"], 1, 1)
        run = (await sandbox.client.start(pipeline)).id
        assert [wait.reason for wait in await sandbox.client.runs.list_waits(run)] == [WaitReason.NOT_CLAIMED]
        assert hands.worker in {worker.id for worker in await sandbox.client.workers.list()}


async def test_a_run_that_no_worker_serves_is_stuck_and_goes_on_by_itself(open_sandbox: OpenSandbox) -> None:
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

        for _ in range(20):  # it does not fail for what others must mend
            await run_watchdog(sandbox, minutes(1))
        assert await state(sandbox, run) == "stuck"
        await sandbox.work()
        assert await state(sandbox, run) == "completed"
        assert await sandbox.client.runs.list_stuck() == []


async def test_a_worker_that_comes_back_ends_it_before_anything_is_done(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await run_watchdog(sandbox, minutes(5))
        async with sandbox.manual_worker() as hands:
            await run_next(hands, "texts")
            await run_watchdog(sandbox, seconds(5), hands)
            assert await state(sandbox, run) == "running"
            assert (await kinds(sandbox, run))[-2:] == ["result texts", "resume"]


async def test_a_stuck_run_that_ends_before_the_next_look_has_gone_on_first(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await run_watchdog(sandbox, minutes(5))
        await sandbox.work()
        assert await state(sandbox, run) == "completed"
        assert (await kinds(sandbox, run))[-2:] == ["resume", "end"]


async def test_a_job_that_is_held_beyond_its_time_makes_its_run_stuck(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands:
        run = await start_with_held_item(sandbox, pipeline, hands)
        await run_watchdog(sandbox, minutes(5), hands)
        (stuck,) = await sandbox.client.runs.list_stuck(run=run)
        assert (stuck.cause, stuck.data["step"], stuck.data["item"]) == ("no_progress", "line", "b")
        assert (stuck.data["last_item"], stuck.data["worker"]) == ("a", hands.worker)
        assert "stuck line:b" in await kinds(sandbox, run)


async def test_it_is_resumed_after_five_seconds_and_what_was_held_runs_elsewhere(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands, sandbox.manual_worker() as others:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(hands, "texts")
        claims = await hands.claim(2)
        await run_watchdog(sandbox, minutes(5), hands, others)
        assert await run_watchdog(sandbox, seconds(4.9), hands, others) == 0
        await run_watchdog(sandbox, seconds(0.1), hands, others)
        assert await state(sandbox, run) == "running"
        await run_next(others, "line:a", "line:b")
        assert await state(sandbox, run) == "completed"
        await run_claims(hands, claims)
        assert hands.rejected_outcomes == 2


async def test_it_fails_after_so_many_resumes_without_progress(open_sandbox: OpenSandbox) -> None:
    pipeline = lines(resumes=2)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands:
        run = await start_with_held_item(sandbox, pipeline, hands)
        await run_watchdog(sandbox, minutes(5), hands)
        for pause in (5, 10):
            await run_watchdog(sandbox, seconds(pause), hands)
            assert await state(sandbox, run) == "running"
            assert await hands.claim(2)
            await run_watchdog(sandbox, minutes(5), hands)
            assert await state(sandbox, run) == "stuck"
        (stuck,) = await sandbox.client.runs.list_stuck()
        assert (stuck.resumes, stuck.max_resumes) == (2, 2)
        await run_watchdog(sandbox, minutes(1), hands)
        assert await state(sandbox, run) == "failed"
        assert await states(sandbox, run) == {"texts": "succeeded", "line:a": "succeeded", "line:b": "cancelled"}


async def test_resumes_of_people_are_not_counted_as_its_own(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands:
        run = await start_with_held_item(sandbox, pipeline, hands)
        await run_watchdog(sandbox, minutes(5), hands)
        await run_watchdog(sandbox, seconds(5), hands)
        assert await sandbox.client.runs.count_resumes(run) == 1
        await hands.claim(2)
        await run_watchdog(sandbox, minutes(5), hands)
        await sandbox.client.runs.resume(run)
        assert await sandbox.client.runs.count_resumes(run) == 0


async def test_a_refusal_of_the_provider_makes_a_run_stuck_and_names_the_pool(open_sandbox: OpenSandbox) -> None:
    pipeline, pool = Pipeline("refused"), Pool("paid", capacity=1)

    @pipeline.step(pool=pool)
    def asked() -> None:
        raise ProviderRejected("no credit")

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands:
        run = (await sandbox.client.start(pipeline)).id
        await hands.record_outcomes(await hands.attempt(await hands.claim()))
        await run_watchdog(sandbox, minutes(5), hands)
        (stuck,) = await sandbox.client.runs.list_stuck(run=run)
        assert (stuck.cause, stuck.data["pool"]) == ("provider_rejected", "paid")
        assert "until" in stuck.data
        assert [event.kind for event in await sandbox.client.runs.list_events(run, kinds=["stuck"])] == ["stuck"]


async def test_what_the_attempt_before_a_held_one_said_is_told(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("hung", timeout=TIMEOUT)

    @pipeline.step(retry=Retry(1, delays=[0]))
    def asked() -> None:
        raise ValueError("no page 3")

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands:
        await sandbox.client.start(pipeline)
        await hands.record_outcomes(await hands.attempt(await hands.claim()))
        await hands.claim()
        await run_watchdog(sandbox, minutes(5), hands)
        (stuck,) = await sandbox.client.runs.list_stuck()
        assert (stuck.cause, stuck.data["message"]) == ("no_progress", "no page 3")
        assert "ValueError" in stuck.data["stack"]


async def test_progress_restarts_the_timeout(open_sandbox: OpenSandbox) -> None:
    pipeline = lines(resumes=1)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(hands, "texts")
        await hands.claim(2)
        await run_watchdog(sandbox, minutes(5), hands)
        await run_watchdog(sandbox, seconds(5), hands)
        claims = await hands.claim(2)
        await run_claims(hands, claims, "line:a")
        await run_watchdog(sandbox, minutes(5), hands)
        (stuck,) = await sandbox.client.runs.list_stuck()
        assert (stuck.run, stuck.resumes) == (run, 0)


async def test_a_person_resumes_it_after_the_automatic_resumes_are_spent(open_sandbox: OpenSandbox) -> None:
    pipeline = lines(resumes=0)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands:
        run = await start_with_held_item(sandbox, pipeline, hands)
        await run_watchdog(sandbox, minutes(5), hands)
        await run_watchdog(sandbox, minutes(1), hands)
        assert await state(sandbox, run) == "failed"
        assert await sandbox.client.runs.resume(run, by="ana") == "running"
        assert await run_next(hands, "line:b")
        assert await state(sandbox, run) == "completed"


async def test_of_fifty_resumes_one_counts_and_all_get_the_same_answer(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands:
        run = await start_with_held_item(sandbox, pipeline, hands)
        await run_watchdog(sandbox, minutes(5), hands)
        assert set(await asyncio.gather(*(sandbox.client.runs.resume(run) for _ in range(50)))) == {"running"}
        assert (await kinds(sandbox, run)).count("resume") == 1


async def test_a_run_that_has_ended_well_cannot_be_resumed(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        with pytest.raises(RunBusy, match="is completed: only a run that is stuck or has failed"):
            await sandbox.client.runs.resume(run.id)
        with pytest.raises(NotFound):
            await sandbox.client.runs.resume(new_run_id())


async def test_a_job_within_its_time_is_no_reason(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("long", timeout=hours(2))

    @pipeline.step
    def film() -> int:
        return 1

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands:
        run = (await sandbox.client.start(pipeline)).id
        await hands.claim(1)
        await run_watchdog(sandbox, hours(2), hands)
        assert await state(sandbox, run) == "running"
        await run_watchdog(sandbox, minutes(5), hands)
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
        return int(await ctx.external("handle", poll=host.status))

    for queue in ("delayed", "pooled", "outside"):
        async with open_sandbox(pipeline, resources={"host": Host()}) as sandbox, sandbox.manual_worker() as hands:
            run = (await sandbox.client.start(pipeline)).id
            await run_claims(hands, await hands.claim(10, queues=[queue]))
            await run_watchdog(sandbox, hours(1), hands)
            assert await state(sandbox, run) == "running"


async def test_external_work_that_no_worker_polls_is_stuck_until_one_does(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("rendered")

    @pipeline.step(timeout=hours(20))
    async def rendered(*, host: Host, ctx: Context) -> int:
        return int(await ctx.external("handle", poll=host.status))

    async with open_sandbox(pipeline, resources={"host": Host()}) as sandbox:
        async with sandbox.manual_worker() as hands:
            run = (await sandbox.client.start(pipeline)).id
            await run_claims(hands, await hands.claim(10))
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
        return int(await ctx.external("handle", poll=host.status))

    other = App("other", pipelines=[lines()])
    async with open_sandbox(pipeline, resources={"host": Host()}) as mine:
        async with mine.manual_worker() as hands:
            run = (await mine.client.start(pipeline)).id
            await run_claims(hands, await hands.claim(10))
        async with sandbox(other, mine.database) as theirs, theirs.manual_worker() as others:
            (wait,) = await mine.client.runs.list_waits(run)
            assert wait.reason == "no_worker"
            await run_watchdog(mine, minutes(5), others)
            assert await state(mine, run) == "stuck"
            async with mine.manual_worker():
                await run_watchdog(mine, seconds(5), others)
                assert await state(mine, run) == "running"


async def test_a_ready_job_says_that_only_another_application_has_workers(open_sandbox: OpenSandbox) -> None:
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


async def test_a_run_that_is_not_due_yet_is_not_watched(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox:
        at = await sandbox.clock.now() + hours(10)
        run = (await sandbox.client.start(pipeline, run_at=at)).id
        await run_watchdog(sandbox, hours(9))
        assert await state(sandbox, run) == "pending"


async def test_two_watchdogs_find_it_stuck_once(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await sandbox.clock.advance(minutes(5))
        await asyncio.gather(*(watchdog.check_due_runs(sandbox.database, HEARTBEAT_TIMEOUT) for _ in range(5)))
        assert (await kinds(sandbox, run)).count("stuck texts") == 1


async def test_a_start_may_have_its_own_number_of_resumes(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands:
        await sandbox.client.start(pipeline, resumes=7)
        await hands.claim(1)
        await run_watchdog(sandbox, minutes(5), hands)
        (stuck,) = await sandbox.client.runs.list_stuck()
        assert stuck.max_resumes == 7


async def test_the_application_says_when_a_run_is_stuck(open_sandbox: OpenSandbox) -> None:
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


async def test_a_run_that_is_not_over_by_its_deadline_fails(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands:
        run = (await sandbox.client.start(pipeline, deadline=minutes(2))).id
        await run_next(hands, "texts")
        await run_watchdog(sandbox, minutes(2) - seconds(1), hands)
        assert await state(sandbox, run) == "running"
        await run_watchdog(sandbox, seconds(1), hands)
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
    (told,) = [vars(record) for record in caplog.records if record.levelname == "ERROR"]
    assert told["event"] == "run_deadline_exceeded"
    assert (told["run"], told["pipeline"], told["tenant"]) == (str(run), "lines", "ours")


async def test_a_deadline_counts_from_when_the_run_may_begin(open_sandbox: OpenSandbox) -> None:
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
        return int(await ctx.external("handle", poll=host.status, cancel=host.cancel))

    host = Renderer()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.manual_worker() as hands:
        run = (await sandbox.client.start(pipeline, deadline=minutes(10))).id
        await run_next(hands, "clip")
        await run_watchdog(sandbox, minutes(10), hands)
        assert (await state(sandbox, run), host.cancelled) == ("running", False)
        await hands.poll_external_work()
        assert (await state(sandbox, run), host.cancelled) == ("failed", True)


async def test_a_run_that_is_rerun_has_its_whole_timeout(open_sandbox: OpenSandbox) -> None:
    pipeline = lines()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as hands:
        run = (await sandbox.client.start(pipeline, deadline=minutes(2))).id
        await run_watchdog(sandbox, minutes(2), hands)
        await sandbox.client.runs.resume(run)
        await run_watchdog(sandbox, minutes(1), hands)
        assert await state(sandbox, run) == "running"
        await run_watchdog(sandbox, minutes(1), hands)
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
