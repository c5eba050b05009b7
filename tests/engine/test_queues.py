"""Queues that people pause, and limit over all workers."""

from __future__ import annotations

import asyncio

import pytest

from retoma import Pipeline, Pool, minutes
from retoma.engine import watchdog
from retoma.errors import InvalidInput, NotFound
from retoma.records import WaitReason
from retoma.testing import NOON
from tests.conftest import OpenSandbox
from tests.engine.builders import HEARTBEAT_TIMEOUT, names, pass_heartbeat_timeout, rows, run_claims, state, value
from tests.engine.test_claim_order import one_step, two_queues
from tests.engine.test_leases import killed_worker
from tests.engine.test_pools import two_sizes
from tests.engine.test_races import begin_uncommitted_call, is_blocked, open_two_channels, wait_until


def chain(queue: str = "render", pool: Pool | None = None) -> Pipeline:
    """A script, whose scenes are rendered in a queue of their own, and then a film in the same queue."""
    pipeline = Pipeline("chain")

    @pipeline.step
    async def script() -> list[int]:
        return [0, 1, 2]

    @pipeline.each(script, queue=queue, pool=pool)
    async def scene(number: int) -> int:
        return number

    @pipeline.each(script, queue=queue, pool=pool)
    async def cut(scene: int) -> int:
        return scene

    return pipeline


async def test_no_job_of_a_paused_queue_starts_until_it_is_resumed(open_sandbox: OpenSandbox) -> None:
    pipeline = two_queues()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as one, sandbox.manual_worker() as other:
        await sandbox.client.start(pipeline)
        await sandbox.client.queues.pause("image", by="ana")
        assert names(await one.claim(10)) == ["voice"]
        assert await other.claim(10) == []
        await sandbox.client.queues.resume("image", by="bo")
        assert names(await other.claim(10)) == ["image"]


async def test_running_jobs_of_a_paused_queue_finish_and_their_successors_wait(open_sandbox: OpenSandbox) -> None:
    pipeline = chain()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        running = await worker.record_outcomes(await worker.attempt(await worker.claim(1)), limit=2)
        assert names(running) == ["scene:0", "scene:1"]
        await sandbox.client.queues.pause("render", by="ana")
        assert await worker.record_outcomes(await worker.attempt(running), limit=10) == []
        await sandbox.client.queues.resume("render", by="ana")
        assert names(await worker.claim(10)) == ["cut:0", "cut:1", "scene:2"]


async def test_the_items_of_a_list_wait_for_their_paused_queue(open_sandbox: OpenSandbox) -> None:
    pipeline = chain()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        outcomes = await worker.attempt(await worker.claim(1))
        await sandbox.client.queues.pause("render", by="ana")
        assert await worker.record_outcomes(outcomes, limit=10) == []


async def test_jobs_with_a_pool_and_suspects_wait_for_their_paused_queue(open_sandbox: OpenSandbox) -> None:
    pipeline = chain(pool=Pool("gpu", capacity=3))
    other = two_queues()
    async with open_sandbox(pipeline, other) as sandbox:
        await sandbox.client.start(pipeline)
        async with sandbox.manual_worker() as worker:
            await run_claims(worker, await worker.claim(1))
        await sandbox.client.start(other)
        async with killed_worker(sandbox) as dying:
            assert names(await dying.claim(1, queues=["image"])) == ["image"]
            await pass_heartbeat_timeout(sandbox)
        async with sandbox.manual_worker() as survivor:
            for queue in ("render", "image"):
                await sandbox.client.queues.pause(queue, by="ana")
            assert names(await survivor.claim(10)) == ["voice"]
            for queue in ("render", "image"):
                await sandbox.client.queues.resume(queue, by="ana")
            assert names(await survivor.claim(10)) == ["image", "scene:0", "scene:1", "scene:2"]


async def test_no_slots_are_reserved_for_a_job_of_a_paused_queue(open_sandbox: OpenSandbox) -> None:
    pipeline = two_sizes(Pool("gpu", capacity=3), queue="large")
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        await run_claims(worker, await worker.claim(1, queues=["default"]), "numbers")
        held = await worker.claim(1, queues=["default"])
        assert await worker.claim(10, queues=["large"]) == []
        await rows(sandbox, "update retoma.pools set reserved_at = reserved_at - interval '1 hour'")
        await sandbox.client.queues.pause("large", by="ana")
        await run_claims(worker, held)
        assert names(await worker.claim(1)) == ["small:1"]


async def test_a_run_says_that_its_queue_is_paused_and_is_not_stuck(open_sandbox: OpenSandbox) -> None:
    pipeline = two_queues()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        for queue in ("image", "audio"):
            await sandbox.client.queues.pause(queue, by="ana")
        waits = await sandbox.client.runs.list_waits(run)
        assert {wait.reason for wait in waits} == {WaitReason.QUEUE_PAUSED}
        assert "resume it: retoma queues resume image" in " ".join(wait.explanation for wait in waits)
        await sandbox.clock.advance(minutes(10))
        await watchdog.check_due_runs(sandbox.database, HEARTBEAT_TIMEOUT)
        assert await state(sandbox, run) == "running"


async def test_a_queue_says_who_paused_it_when_and_why(open_sandbox: OpenSandbox) -> None:
    pipeline = two_queues()
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)
        await sandbox.client.queues.pause("image", by="ana", reason="new GPU")
        await sandbox.clock.advance(minutes(1))
        again = await sandbox.client.queues.pause("image", by="bo", reason="another")
        assert (again.paused_at, again.paused_by, again.pause_reason) == (NOON, "ana", "new GPU")
        audio, image = await sandbox.client.queues.list(tenant="default")
        assert (audio.paused_at, image.paused_by) == (None, "ana")
        resumed = await sandbox.client.queues.resume("image", by="bo")
        assert (resumed.paused_at, resumed.paused_by, resumed.pause_reason) == (None, None, None)


async def test_a_queue_that_nobody_uses_cannot_be_paused(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(two_queues()) as sandbox:
        with pytest.raises(NotFound, match="no queue 'imgae'"):
            await sandbox.client.queues.pause("imgae", by="ana")
        for name in ("imgae", "", "\0"):
            with pytest.raises(NotFound):
                await sandbox.client.queues.resume(name, by="ana")
        for by, reason in (("", None), ("ana", "x" * 501), ("ana", "\0")):
            with pytest.raises(InvalidInput):
                await sandbox.client.queues.pause("image", by=by, reason=reason)


async def test_all_workers_together_run_no_more_jobs_than_the_limit_of_the_queue(open_sandbox: OpenSandbox) -> None:
    pipeline = chain()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as one, sandbox.manual_worker() as other:
        await sandbox.client.start(pipeline)
        await run_claims(one, await one.claim(1))
        await sandbox.client.queues.update("render", concurrency=2)
        running = await one.claim(1)
        assert names([*running, *await other.claim(10)]) == ["scene:0", "scene:1"]
        assert await one.claim(10) == []
        # The slot of an ended job is free in the same call, and a successor gets no slot of its own.
        assert names(await one.record_outcomes(await one.attempt(running), limit=10)) in (["cut:0"], ["scene:2"])
        assert await other.claim(10) == []
        await sandbox.client.queues.update("render", concurrency=0)
        assert len(await other.claim(10)) == 1


async def test_jobs_that_run_when_a_limit_is_set_count(open_sandbox: OpenSandbox) -> None:
    pipeline = chain()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        await run_claims(worker, await worker.claim(1))
        running = await worker.claim(2)
        await sandbox.client.queues.update("render", concurrency=1)
        assert await worker.claim(10) == []
        await run_claims(worker, running, "scene:0")
        assert await worker.claim(10) == []
        await run_claims(worker, running, "scene:1")
        assert len(await worker.claim(10)) == 1


async def test_a_limited_queue_neither_delays_nor_starves_another(open_sandbox: OpenSandbox) -> None:
    pipeline = two_queues()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start_many(pipeline, [None] * 20)
        await sandbox.client.queues.update("image", concurrency=1)
        claims = [*await worker.claim(5), *await worker.claim(5)]
        assert names(claims) == ["image", *["voice"] * 9]
        await sandbox.client.queues.update("image", concurrency=20)
        steps = [(await worker.claim(1))[0].step for _ in range(6)]
        assert set(steps) == {"image", "voice"}


async def test_jobs_with_pools_and_suspects_stay_within_the_limit_of_their_queue(open_sandbox: OpenSandbox) -> None:
    pipeline = chain(pool=Pool("gpu", capacity=3))
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)
        await sandbox.client.queues.update("render", concurrency=1)
        async with killed_worker(sandbox) as dying:
            await run_claims(dying, await dying.claim(1))
            assert len(await dying.claim(10)) == 1
            async with sandbox.manual_worker() as other:
                assert await other.claim(10) == []
            await pass_heartbeat_timeout(sandbox)
        async with sandbox.manual_worker() as survivor:
            # The slot of the dead worker's job is free, for that job or another.
            assert len(await survivor.claim(10)) == 1
            assert await survivor.claim(10) == []


async def test_claims_that_meet_do_not_exceed_the_limit(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (first, second):
        await sandbox.client.start_many(pipeline, [None] * 5)
        await sandbox.client.queues.update("default", concurrency=1)
        async with begin_uncommitted_call(sandbox, first, limit=1) as commit:
            claiming = asyncio.create_task(second.call(limit=5))
            await wait_until(lambda: is_blocked(sandbox, "finish_and_claim"))
            await commit()
            assert await claiming == []


async def test_a_job_that_is_claimed_while_the_limit_is_set_counts(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (first, second):
        await sandbox.client.start_many(pipeline, [None] * 5)
        async with begin_uncommitted_call(sandbox, first, limit=1) as commit:
            limiting = asyncio.create_task(sandbox.client.queues.update("default", concurrency=1))
            await wait_until(lambda: is_blocked(sandbox, "limit_queue"))
            claiming = asyncio.create_task(second.call(limit=5))
            await wait_until(lambda: is_blocked(sandbox, "finish_and_claim"))
            await commit()
            await limiting
            assert await claiming == []


async def test_a_run_says_that_its_queue_is_full(open_sandbox: OpenSandbox) -> None:
    pipeline = chain()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_claims(worker, await worker.claim(1))
        await sandbox.client.queues.update("render", concurrency=1)
        (running,) = await worker.claim(1)
        assert [wait.reason for wait in await sandbox.client.runs.list_waits(run)] == [WaitReason.QUEUE_FULL]
        await run_claims(worker, [running])
        assert {wait.reason for wait in await sandbox.client.runs.list_waits(run)} == {WaitReason.NOT_CLAIMED}


async def test_a_queue_can_be_limited_and_paused_at_once(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(two_queues()) as sandbox, sandbox.manual_worker():
        await sandbox.client.queues.update("image", concurrency=2)
        paused = await sandbox.client.queues.pause("image", by="ana")
        assert (paused.concurrency_limit, paused.paused_by) == (2, "ana")
        resumed = await sandbox.client.queues.resume("image", by="ana")
        assert (resumed.concurrency_limit, resumed.paused_by) == (2, None)
        await sandbox.client.queues.pause("image", by="ana")
        unlimited = await sandbox.client.queues.update("image", concurrency=0)
        assert (unlimited.concurrency_limit, unlimited.paused_by) == (None, "ana")
        await sandbox.client.queues.resume("image", by="ana")
        assert await value(sandbox, "select count(*) from retoma.queues") == 0


async def test_a_limit_is_a_number_for_a_queue_that_exists(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(two_queues()) as sandbox, sandbox.manual_worker():
        for number in (-1, 2_000_000):
            with pytest.raises(InvalidInput):
                await sandbox.client.queues.update("image", concurrency=number)
        with pytest.raises(NotFound):
            await sandbox.client.queues.update("imgae", concurrency=1)
