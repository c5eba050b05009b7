"""A submission in progress when its attempt is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import pytest

from retoma import Context, Pipeline, PollResult, Pool, Retry, Settings
from retoma.identifiers import ClaimKey
from retoma.testing import Sandbox
from retoma.worker import context_backend
from retoma.worker.executor import Executor
from retoma.worker.worker import Worker
from tests.conftest import OpenSandbox
from tests.wait_timeout import WAIT_TIMEOUT

film = Pipeline("film", retry=Retry(0))


class Host:
    """It accepts the work and answers when the test says so."""

    def __init__(self) -> None:
        self.submitted, self.told, self.answers = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.cancelled: list[str] = []

    async def submit(self) -> str:
        self.submitted.set()
        await self.answers.wait()
        return "handle"

    async def status(self, external_id: str) -> PollResult:
        return PollResult("cancelled" if external_id in self.cancelled else "running")

    async def cancel(self, external_id: str) -> None:
        self.cancelled.append(external_id)


@film.step(pool=Pool("gpu", capacity=1))
async def clip(*, host: Host, ctx: Context) -> str:
    return str(await ctx.external(host.submit, poll=host.status, cancel=host.cancel, poll_interval=0.1))


@asynccontextmanager
async def cancel_during_submission(
    open_sandbox: OpenSandbox, host: Host, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Sandbox, UUID]]:
    tell = Executor.cancel

    def noticed(workload: Executor, jobs: set[ClaimKey]) -> None:
        tell(workload, jobs)
        if jobs:
            host.told.set()

    monkeypatch.setattr(Executor, "cancel", noticed)
    async with open_sandbox(film, resources={"host": host}) as sandbox, asyncio.timeout(WAIT_TIMEOUT):
        worker = Worker(sandbox.app, sandbox.database, Settings(), concurrency=2)
        working = asyncio.create_task(worker.run())
        try:
            run = (await sandbox.client.start(film)).id
            await host.submitted.wait()
            assert await sandbox.client.runs.cancel(run) == "cancelling"
            await host.told.wait()
            yield sandbox, run
        finally:
            host.answers.set()
            worker.stop()
            await working


async def test_work_submitted_while_its_run_was_cancelled_is_cancelled_too(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host()
    async with cancel_during_submission(open_sandbox, host, monkeypatch) as (sandbox, run):
        assert (await sandbox.client.pools.list("gpu"))[0].used == 1
        host.answers.set()
        ended = await sandbox.client.wait(run, timedelta(seconds=WAIT_TIMEOUT))
        assert (str(ended.state), host.cancelled) == ("cancelled", ["handle"])
        assert (await sandbox.client.pools.list("gpu"))[0].used == 0


async def test_a_submission_that_never_answers_is_eventually_given_up(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_backend, "CALL_GRACE", 0.05)
    async with cancel_during_submission(open_sandbox, Host(), monkeypatch) as (sandbox, run):
        ended = await sandbox.client.wait(run, timedelta(seconds=WAIT_TIMEOUT))
        assert str(ended.state) == "cancelled"
        assert (await sandbox.client.pools.list("gpu"))[0].used == 0


async def test_a_worker_that_stops_within_one_effect_leaves_the_next_to_another(open_sandbox: OpenSandbox) -> None:
    pipeline, host, begun = Pipeline("two", retry=Retry(0)), Host(), []

    @pipeline.step
    async def both(*, host: Host, ctx: Context) -> list[str]:
        first = await ctx.once("first", host.submit)
        await ctx.once("second", lambda: begun.append(ctx.attempt))
        return [first]

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, asyncio.timeout(WAIT_TIMEOUT):
        run = (await sandbox.client.start(pipeline)).id
        worker = Worker(sandbox.app, sandbox.database, Settings())
        working = asyncio.create_task(worker.run())
        await host.submitted.wait()
        worker.stop_at_once()
        asyncio.get_running_loop().call_soon(host.answers.set)
        await working
        (job,) = await sandbox.client.runs.list_jobs(run)
        assert (str(job.state), begun) == ("ready", [])
        await sandbox.work()
        assert (await sandbox.client.runs.get_results(run), len(begun)) == ({"both": ["handle"]}, 1)
