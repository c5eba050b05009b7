"""Workers that a person asks to drain."""

from __future__ import annotations

import pytest

from retoma.errors import InvalidInput, NotFound
from retoma.records import WaitReason
from retoma.testing import NOON
from tests.conftest import OpenSandbox
from tests.engine.builders import names, run_claims
from tests.engine.test_claim_order import one_step
from tests.engine.test_queues import chain


async def test_a_draining_worker_finishes_its_jobs_and_claims_nothing_more(open_sandbox: OpenSandbox) -> None:
    pipeline = chain()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker, sandbox.manual_worker() as other:
        await sandbox.client.start(pipeline)
        await run_claims(worker, await worker.claim(1))
        running = await worker.claim(2)
        await sandbox.client.workers.drain(worker.worker, by="ana")
        # It neither claims a job nor keeps a successor.
        assert await worker.record_outcomes(await worker.attempt(running), limit=10) == []
        assert await worker.claim(10) == []
        assert names(await other.claim(10)) == ["cut:0", "cut:1", "scene:2"]


async def test_a_worker_says_who_asked_it_to_drain_and_when(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.workers.drain(worker.worker, by="ana")
        again = await sandbox.client.workers.drain(worker.worker, by="bo")
        assert (again.drain_requested_at, again.drain_requested_by) == (NOON, "ana")
        assert await sandbox.client.workers.list() == [again]


async def test_a_queue_whose_only_worker_drains_has_none(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await sandbox.client.workers.drain(worker.worker, by="ana")
        assert [wait.reason for wait in await sandbox.client.runs.list_waits(run)] == [WaitReason.NO_WORKER]
        assert [queue.workers for queue in await sandbox.client.queues.list()] == [0]


async def test_only_a_running_worker_can_be_drained(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        async with sandbox.manual_worker() as worker:
            with pytest.raises(InvalidInput):
                await sandbox.client.workers.drain(worker.worker, by="")
        for number in (worker.worker, 0, 2**40):
            with pytest.raises(NotFound, match="no running worker"):
                await sandbox.client.workers.drain(number, by="ana")
