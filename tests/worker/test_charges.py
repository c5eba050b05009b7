"""Charges of a real worker's attempts, including those that it could not finish."""

from __future__ import annotations

import asyncio
import threading

from retoma import Context, Pipeline, Retry, seconds
from tests.conftest import OpenSandbox
from tests.worker.test_worker import SOON, run_worker, wait_until


async def test_an_ended_run_has_its_charges(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("ask")

    @pipeline.step
    def label(*, ctx: Context) -> int:
        ctx.charge("openrouter", "small", tokens_in=1)
        return 1

    async with open_sandbox(pipeline) as sandbox, run_worker(sandbox):
        for _ in range(5):
            run = await sandbox.client.start(pipeline)
            await sandbox.client.wait(run.id, SOON)
            assert len(await sandbox.client.costs.list_charges(run.id)) == 1


async def test_a_long_attempt_is_charged_while_it_runs(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("ask")
    answered = asyncio.Event()

    @pipeline.step
    async def label(*, ctx: Context) -> int:
        ctx.charge("openrouter", "small", tokens_in=1)
        await answered.wait()
        return 1

    async with open_sandbox(pipeline) as sandbox, run_worker(sandbox):
        run = await sandbox.client.start(pipeline)
        assert await wait_until(lambda: sandbox.client.costs.list_charges(run.id))
        answered.set()


async def test_a_call_that_outlives_its_attempt_is_charged_when_it_returns(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("ask", retry=Retry(0))
    answered = threading.Event()

    @pipeline.step(timeout=seconds(0.05))
    def label(*, ctx: Context) -> int:
        answered.wait(SOON.total_seconds())
        ctx.charge("openrouter", "small", tokens_in=1)
        return 1

    async with open_sandbox(pipeline) as sandbox, run_worker(sandbox):
        run = await sandbox.client.start(pipeline)
        assert (await sandbox.client.wait(run.id, SOON)).state == "failed"
        assert await sandbox.client.costs.list_charges(run.id) == []
        answered.set()
        assert await wait_until(lambda: sandbox.client.costs.list_charges(run.id))
