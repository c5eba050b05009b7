"""Workers that report where their running jobs are."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from uuid import UUID

import pytest

from retoma import Pipeline, minutes
from retoma.errors import NotFound
from retoma.records import JobStack
from retoma.testing import Sandbox
from retoma.worker.stacks import format_task_stack
from tests.conftest import OpenSandbox
from tests.engine.builders import value
from tests.engine.test_claim_order import one_step
from tests.wait_timeout import WAIT_TIMEOUT
from tests.worker.isolated_steps import endless
from tests.worker.test_worker import run_worker, wait_until

SOON = timedelta(seconds=WAIT_TIMEOUT)
HEARTBEAT_TIMEOUT = 0.6  # heartbeats are sent three times as often


async def ask_for_stack(sandbox: Sandbox, run: UUID, has_begun: threading.Event) -> JobStack:
    """Return where the only job of the run is, once its step has begun."""
    async with run_worker(sandbox, heartbeat_timeout=HEARTBEAT_TIMEOUT, drain_seconds=0):
        await asyncio.to_thread(has_begun.wait, WAIT_TIMEOUT)
        (found,) = await get_stacks(sandbox)
    assert found.run == run
    return found


async def get_stacks(sandbox: Sandbox) -> list[JobStack]:
    """Ask the only worker, once it is running."""
    (worker,) = await wait_until(sandbox.client.workers.list)
    await sandbox.client.workers.request_stacks(worker.id, by="ana")
    return (await sandbox.client.workers.wait_for_stacks(worker.id, SOON)).jobs


async def test_the_stack_of_an_async_step_names_the_call_that_it_waits_for(open_sandbox: OpenSandbox) -> None:
    pipeline, has_begun = Pipeline("calls"), threading.Event()

    async def ask_provider() -> None:
        has_begun.set()
        await asyncio.sleep(3600)

    @pipeline.step(timeout=minutes(60))
    async def call() -> None:
        await ask_provider()

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        found = await ask_for_stack(sandbox, run, has_begun)
    assert (found.step, found.attempt) == ("call", 1)
    assert found.stack is not None
    assert "in call\n    await ask_provider()" in found.stack
    assert "in ask_provider\n    await asyncio.sleep(3600)" in found.stack
    assert "run_attempt" not in found.stack


async def test_the_stack_of_a_plain_step_is_that_of_its_thread(open_sandbox: OpenSandbox) -> None:
    pipeline, has_begun, may_end = Pipeline("calls"), threading.Event(), threading.Event()

    @pipeline.step(timeout=minutes(60))
    def read() -> None:
        has_begun.set()
        may_end.wait()

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        try:
            found = await ask_for_stack(sandbox, run, has_begun)
        finally:
            may_end.set()
    assert found.stack is not None
    assert "in read\n    may_end.wait()" in found.stack
    assert "_run_calls" not in found.stack


async def test_a_step_that_blocks_the_loop_is_seen_in_its_call() -> None:
    has_begun, may_end, loop_thread = threading.Event(), threading.Event(), threading.get_ident()
    stacks: list[str] = []

    async def block() -> None:
        has_begun.set()
        may_end.wait(WAIT_TIMEOUT)

    def watch() -> None:
        """Ask in another thread, because the loop of this one is blocked."""
        has_begun.wait(WAIT_TIMEOUT)
        stacks.append(format_task_stack(task, loop_thread))
        may_end.set()

    task = asyncio.create_task(block())
    watcher = threading.Thread(target=watch)
    watcher.start()
    await task
    watcher.join()
    assert "in block\n    may_end.wait(WAIT_TIMEOUT)" in stacks[0]
    assert "in wait" in stacks[0]


async def test_the_stack_of_an_isolated_step_is_not_available(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(endless) as sandbox:
        run = (await sandbox.client.start(endless, {"lifeline": "/dev/null"})).id
        async with run_worker(sandbox, heartbeat_timeout=HEARTBEAT_TIMEOUT, drain_seconds=0):

            async def find_started() -> JobStack | None:
                return next((job for job in await get_stacks(sandbox) if job.seconds is not None), None)

            found = await wait_until(find_started)
    assert (found.run, found.stack) == (run, None)


async def test_secrets_and_folders_are_masked_in_stacks(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_API_KEY", "s3cret-of-the-provider")
    pipeline, has_begun = Pipeline("calls"), threading.Event()

    @pipeline.step(timeout=minutes(60))
    async def call() -> None:
        has_begun.set()
        await asyncio.sleep(3600, "s3cret-of-the-provider")

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        found = await ask_for_stack(sandbox, run, has_begun)
    assert found.stack is not None
    assert "s3cret" not in found.stack
    assert "[PROVIDER_API_KEY]" in found.stack
    assert 'File "tests/worker/test_stacks.py"' in found.stack


async def test_stacks_are_deleted_when_their_worker_ends(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        async with sandbox.manual_worker() as worker:
            asked = await sandbox.client.workers.request_stacks(worker.worker, by="ana")
            again = await sandbox.client.workers.request_stacks(worker.worker, by="bo")
            assert (asked.requested_by, asked.answered_at, again) == ("ana", None, asked)
        assert await value(sandbox, "select count(*) from retoma.worker_stacks") == 0
        for number in (worker.worker, 0, 2**40):
            with pytest.raises(NotFound, match="running worker"):
                await sandbox.client.workers.request_stacks(number, by="ana")
