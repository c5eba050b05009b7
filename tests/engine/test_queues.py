"""Queues that people pause, and limit over all workers."""

from __future__ import annotations

import pytest

from retoma import Pipeline, Pool, minutes
from retoma.engine import watchdog
from retoma.errors import InvalidInput, NotFound
from retoma.records import WaitReason
from retoma.testing import NOON
from tests.conftest import OpenSandbox
from tests.engine.builders import HEARTBEAT_TIMEOUT, names, pass_heartbeat_timeout, rows, run_claims, state
from tests.engine.test_claim_order import two_queues


def chain(queue: str = "render", pool: Pool | None = None) -> Pipeline:
    """A script, whose scenes are rendered in a queue of their own, and then a film in the same queue."""
    pipeline = Pipeline("chain")

    @pipeline.step
    async def script() -> list[int]:
        return [1, 2, 3]

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
        doomed = sandbox.manual_worker()
        worker = await doomed.__aenter__()
        await sandbox.client.start(other)
        assert names(await worker.claim(1, queues=["image"])) == ["image"]
        await pass_heartbeat_timeout(sandbox)
        await worker.abandon()
        async with sandbox.manual_worker() as survivor:
            for queue in ("render", "image"):
                await sandbox.client.queues.pause(queue, by="ana")
            assert names(await survivor.claim(10)) == ["voice"]
            for queue in ("render", "image"):
                await sandbox.client.queues.resume(queue, by="ana")
            assert names(await survivor.claim(10)) == ["image", "scene:0", "scene:1", "scene:2"]


async def test_no_slots_are_reserved_for_a_job_of_a_paused_queue(open_sandbox: OpenSandbox) -> None:
    gpu = Pool("gpu", capacity=2)
    pipeline = Pipeline("sizes")

    @pipeline.step(pool=gpu, slots=2, queue="large", priority=1)
    def large() -> int:
        return 2

    @pipeline.step(pool=gpu)
    def one() -> int:
        return 1

    @pipeline.step(pool=gpu)
    def two() -> int:
        return 1

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        first = await worker.claim(1, queues=["default"])
        assert await worker.claim(10, queues=["large"]) == []
        await rows(sandbox, "update retoma.pools set reserved_at = reserved_at - interval '1 hour'")
        await sandbox.client.queues.pause("large", by="ana")
        await run_claims(worker, first)
        assert len(await worker.claim(1)) == 1


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
        with pytest.raises(NotFound):
            await sandbox.client.queues.resume("imgae", by="ana")
        for by, reason in (("", None), ("ana", "x" * 501), ("ana", "\0")):
            with pytest.raises(InvalidInput):
                await sandbox.client.queues.pause("image", by=by, reason=reason)
