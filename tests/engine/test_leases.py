"""Leases: who may finish a job, and what happens to a worker's jobs when it dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace

from retoma import Context, Items, Pipeline, Retry
from retoma.engine import outcomes
from retoma.engine.claim_protocol import Claim
from retoma.engine.outcomes import Outcome, Success
from retoma.errors import WorkerGone
from retoma.records import Job
from retoma.store import workers
from retoma.testing import ManualWorker, Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import (
    HEARTBEAT_TIMEOUT,
    kinds,
    names,
    open_channel,
    pass_heartbeat_timeout,
    run_claims,
    run_next,
    state,
    states,
    value,
)


async def test_a_claim_cannot_be_changed(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        (claim,) = await worker.claim()
        for name in claim.__struct_fields__:
            with pytest.raises(AttributeError, match="immutable"):
                setattr(claim, name, None)


async def test_a_stale_fence_cannot_finish_and_is_counted(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        (claim,) = await worker.claim()
        for stale in (claim.fence - 1, claim.fence + 1):
            await worker.record_outcomes([Success(replace(claim, key=(*claim.key[:4], stale), fence=stale), '"stale"')])
        assert worker.rejected_outcomes == 2
        assert await states(sandbox, run) == {"answer": "running"}
        await worker.record_outcomes([Success(claim, '"right"')])
        assert await sandbox.client.runs.get_results(run) == {"answer": "right"}


async def test_a_result_is_recorded_once_and_never_changes(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        (claim,) = await worker.claim()
        await worker.record_outcomes([Success(claim, '"first"')])
        await worker.record_outcomes([Success(claim, '"second"')])
        assert worker.rejected_outcomes == 1
        assert await sandbox.client.runs.get_results(run) == {"answer": "first"}
        assert await kinds(sandbox, run) == ["start", "result answer", "end"]


async def test_a_rejected_outcome_does_not_affect_others_in_its_call(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start_many(pipeline, [None] * 3)
        claims = await worker.claim(3)
        stale = claims[1].fence - 1
        claims[1] = replace(claims[1], key=(*claims[1].key[:4], stale), fence=stale)
        await run_claims(worker, claims)
        assert worker.rejected_outcomes == 1
        assert sorted([await state(sandbox, claim.run) for claim in claims]) == ["completed", "completed", "running"]


async def test_a_worker_cannot_finish_a_job_of_another(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as holder, sandbox.manual_worker() as other:
        run = (await sandbox.client.start(pipeline)).id
        claims = await holder.claim()
        await run_claims(other, claims)
        assert other.rejected_outcomes == 1
        assert await states(sandbox, run) == {"answer": "running"}


async def test_every_claim_has_a_higher_fence(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)
        fences = []
        for _ in range(3):
            async with sandbox.manual_worker() as worker:
                fences += [claim.fence for claim in await worker.claim()]
    assert fences == [1, 2, 3]


async def test_jobs_are_ready_again_after_the_heartbeat_timeout(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, killed_worker(sandbox) as dying:
        await sandbox.client.start_many(pipeline, [None] * 3)
        assert len(await dying.claim(2)) == 2
        assert await pass_heartbeat_timeout(sandbox) == [(dying.worker, 2)]
        assert {job.state for job in await all_jobs(sandbox)} == {"ready"}
        assert await sandbox.work() == 3
        assert {run.state for run in await sandbox.client.runs.list()} == {"completed"}


async def test_a_worker_that_vanished_keeps_its_jobs_until_its_heartbeats_are_missed(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)
        async with killed_worker(sandbox) as dying:
            await dying.claim()
        assert await sandbox.work(advance_clock=False) == 0
        assert await pass_heartbeat_timeout(sandbox) == [(dying.worker, 1)]


async def test_a_worker_that_sends_heartbeats_keeps_its_jobs(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        claims = await worker.claim()
        for _ in range(5):
            await sandbox.clock.advance(timedelta(seconds=5))
            await value(
                sandbox,
                "update retoma.workers set heartbeat_at = retoma.now() where id = $1 returning id",
                worker.worker,
            )
            assert await workers.reap_dead_workers(sandbox.database, HEARTBEAT_TIMEOUT) == []
        await run_claims(worker, claims)
        assert worker.rejected_outcomes == 0


async def test_a_result_after_the_worker_is_declared_dead_is_rejected(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, killed_worker(sandbox) as dying:
        run = (await sandbox.client.start(pipeline)).id
        outcomes = await dying.attempt(await dying.claim())
        await pass_heartbeat_timeout(sandbox)
        with pytest.raises(WorkerGone):
            await dying.record_outcomes(outcomes)
        assert await states(sandbox, run) == {"answer": "ready"}


async def test_a_deregistered_worker_can_claim_nothing(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, killed_worker(sandbox) as dying:
        await pass_heartbeat_timeout(sandbox)
        await sandbox.client.start(pipeline)
        with pytest.raises(WorkerGone, match=str(dying.worker)):
            await dying.claim()
        assert {job.state for job in await all_jobs(sandbox)} == {"ready"}


async def test_a_stopped_worker_can_claim_nothing(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        channel = await open_channel(sandbox)
        await workers.deregister_worker(sandbox.database, channel.worker)
        with pytest.raises(WorkerGone):
            await channel.call(limit=1)


async def test_unstarted_jobs_are_returned_without_a_crash_count(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        (claim,) = await worker.claim()
        await worker.record_outcomes([outcomes.Returned(claim)])
        (job,) = await all_jobs(sandbox)
        assert (job.state, job.attempt, job.worker_deaths, job.code) == ("ready", 0, 0, None)
        assert await kinds(sandbox, run) == ["start"]


async def test_jobs_of_a_stopping_worker_are_ready_again_and_not_suspects(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step(retry=Retry(0))
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        async with sandbox.manual_worker() as worker:
            await worker.claim()
        (job,) = await all_jobs(sandbox)
        assert (job.state, job.attempt, job.worker_deaths, job.code) == ("ready", 1, 0, "INTERRUPTED")
        assert await kinds(sandbox, run) == ["start", "retry answer"]
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


async def test_a_worker_death_is_recorded_and_counted_with_the_attempt(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, killed_worker(sandbox) as dying:
        run = (await sandbox.client.start(pipeline)).id
        await dying.claim()
        await pass_heartbeat_timeout(sandbox)
        (job,) = await all_jobs(sandbox)
        assert (job.attempt, job.worker_deaths, job.code) == (1, 1, "WORKER_DIED")
        (_, event) = await sandbox.client.runs.list_events(run)
        assert (event.kind, event.worker, event.data) == (
            "retry",
            dying.worker,
            {
                "code": "WORKER_DIED",
                "message": "its worker died or could not reach the database for too long",
                "fence": 1,
            },
        )


async def test_suspects_are_claimed_one_at_a_time(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, killed_worker(sandbox) as dying:
        await sandbox.client.start_many(pipeline, [None] * 5)
        suspects = await dying.claim(3)
        await pass_heartbeat_timeout(sandbox)
        channel = await open_channel(sandbox)
        first = await channel.call(limit=10)
        assert len(first) == 3
        assert [claim.worker_deaths for claim in first].count(1) == 1
        assert await channel.call(limit=10, suspect=False) == []
        second = await channel.call(limit=10)
        third = await channel.call(limit=10)
        assert {claim.run for claim in [*first, *second, *third]} >= {claim.run for claim in suspects}
        assert (len(second), len(third)) == (1, 1)


async def test_a_job_that_kills_its_worker_three_times_is_quarantined(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step(retry=Retry(99))
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        for death in (1, 2, 3):
            async with killed_worker(sandbox) as dying:
                (claim,) = await dying.claim()
                assert (claim.attempt, claim.worker_deaths) == (death, death - 1)
                await pass_heartbeat_timeout(sandbox)
        (job,) = await all_jobs(sandbox)
        assert (job.state, job.code, job.worker_deaths) == ("quarantined", "QUARANTINED", 3)
        assert await state(sandbox, run) == "failed"
        assert await kinds(sandbox, run) == ["start", "retry answer", "retry answer", "failure answer", "end"]
        assert await sandbox.work() == 0


async def test_a_quarantined_item_does_not_block_the_join_of_the_others(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("poison")

    @pipeline.step
    async def numbers() -> list[int]:
        return [1, 2, 3]

    @pipeline.each(numbers)
    async def square(number: int) -> int:
        return number * number

    @pipeline.step
    async def total(square: Items[int]) -> list[str]:
        return [str(sum(square)), *(f"{failed.key} {failed.state} {failed.code}" for failed in square.failures)]

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "numbers")
        claims = await worker.claim(3)
        await run_claims(worker, claims, "square:1", "square:3")
        await pass_heartbeat_timeout(sandbox)
        for _ in range(2):
            async with killed_worker(sandbox) as dying:
                assert names(await dying.claim(5)) == ["square:2"]
                await pass_heartbeat_timeout(sandbox)
        await sandbox.work()
        assert await state(sandbox, run) == "completed_with_errors"
        assert (await sandbox.client.runs.get_results(run))["total"] == ["10", "2 quarantined QUARANTINED"]


async def test_a_suspect_that_succeeds_continues_normally(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("chain")

    @pipeline.step
    async def first(*, ctx: Context) -> bool:
        return ctx.maybe_done

    @pipeline.step
    async def second(first: bool) -> bool:
        return first

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        async with killed_worker(sandbox) as dying:
            await dying.claim()
            await pass_heartbeat_timeout(sandbox)
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"first": True, "second": True}
        assert {job.step: job.worker_deaths for job in await all_jobs(sandbox)} == {"first": 1, "second": 0}


async def test_a_successor_kept_by_a_worker_is_released_when_the_worker_dies(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("chain")

    @pipeline.step
    async def first() -> int:
        return 1

    @pipeline.step
    async def second(first: int) -> int:
        return first + 1

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        async with killed_worker(sandbox) as dying:
            kept = await dying.record_outcomes(await dying.attempt(await dying.claim()), limit=1)
            assert names(kept) == ["second"]
            await pass_heartbeat_timeout(sandbox)
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"first": 1, "second": 2}


async def test_two_concurrent_reapers_release_each_job_once(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        for _ in range(10):
            run = (await sandbox.client.start(pipeline)).id
            async with killed_worker(sandbox) as one, killed_worker(sandbox) as other:
                await one.claim()
                await sandbox.clock.advance(HEARTBEAT_TIMEOUT + timedelta(seconds=1))
                swept = await asyncio.gather(
                    *(workers.reap_dead_workers(sandbox.database, HEARTBEAT_TIMEOUT) for _ in range(4))
                )
                assert sorted(dead for some in swept for dead in some) == [(one.worker, 1), (other.worker, 0)]
            (job,) = await sandbox.client.runs.list_jobs(run)
            assert (job.state, job.worker_deaths) == ("ready", 1)
            await sandbox.work()


async def test_a_running_call_ends_before_its_worker_is_declared_dead(open_sandbox: OpenSandbox) -> None:
    """The dead worker's last call and the sweep race: its jobs end, or they come back, and none is lost."""
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        for _ in range(15):
            runs = await sandbox.client.start_many(pipeline, [None] * 6)
            async with killed_worker(sandbox) as dying:
                outcomes = await dying.attempt(await dying.claim(3))
                await sandbox.clock.advance(HEARTBEAT_TIMEOUT + timedelta(seconds=1))
                last, swept = await asyncio.gather(
                    last_call(dying, outcomes), workers.reap_dead_workers(sandbox.database, HEARTBEAT_TIMEOUT)
                )
            assert swept == [(dying.worker, 3)], "three that it held, or three that its last call claimed"
            found = [str(job.state) for run in runs for job in await sandbox.client.runs.list_jobs(run.id)]
            assert found.count("running") == 0
            assert found.count("succeeded") == (3 if last is not None else 0)
            await sandbox.work()
            assert {await state(sandbox, run.id) for run in runs} == {"completed"}


async def last_call(worker: ManualWorker, outcomes: list[Outcome]) -> list[Claim] | None:
    try:
        return await worker.record_outcomes(outcomes, limit=3)
    except WorkerGone:
        return None


async def test_a_worker_that_has_disappeared_is_not_deregistered_later(open_sandbox: OpenSandbox) -> None:
    """Its deregistration would race with the other workers of a test."""
    async with open_sandbox(one_step()) as sandbox:
        async with killed_worker(sandbox) as killed:
            pass
        assert await value(sandbox, "select ended_at from retoma.workers where id = $1", killed.worker) is None
        assert await pass_heartbeat_timeout(sandbox) == [(killed.worker, 0)]


@asynccontextmanager
async def killed_worker(sandbox: Sandbox) -> AsyncIterator[ManualWorker]:
    """A worker that will miss its heartbeats: it vanishes without deregistering."""
    async with sandbox.manual_worker() as worker:
        try:
            yield worker
        finally:
            await worker.abandon()


async def all_jobs(sandbox: Sandbox) -> list[Job]:
    return [job for run in await sandbox.client.runs.list() for job in await sandbox.client.runs.list_jobs(run.id)]


def one_step(retry: Retry | None = None) -> Pipeline:
    pipeline = Pipeline("one")

    @pipeline.step(retry=retry or Retry(0))
    async def answer() -> str:
        return "answer"

    return pipeline


async def test_each_worker_has_its_own_heartbeat_timeout(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        patient = await workers.register_worker(sandbox.database, "patient", ["default"], 1, 1, timedelta(seconds=6))
        hasty = await workers.register_worker(sandbox.database, "hasty", ["default"], 1, 1, timedelta(seconds=1))
        await sandbox.clock.advance(timedelta(seconds=3))
        assert {one.id: one.is_alive(timedelta(seconds=1)) for one in await sandbox.client.workers.list()} == {
            patient: True,
            hasty: False,
        }
        assert await workers.reap_dead_workers(sandbox.database, timedelta(seconds=1)) == [(hasty, 0)]
        await sandbox.clock.advance(timedelta(seconds=4))
        assert await workers.reap_dead_workers(sandbox.database, timedelta(minutes=1)) == [(patient, 0)]


async def test_a_reaper_that_was_disconnected_gives_others_time_for_heartbeats(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        patient = await workers.register_worker(sandbox.database, "patient", ["default"], 1, 1, timedelta(seconds=6))
        await sandbox.clock.advance(timedelta(minutes=1))
        hasty = timedelta(seconds=1)
        assert await workers.reap_dead_workers(sandbox.database, hasty, reachable_for=timedelta(seconds=5)) == []
        assert await workers.reap_dead_workers(sandbox.database, hasty, reachable_for=timedelta(seconds=7)) == [
            (patient, 0)
        ]
