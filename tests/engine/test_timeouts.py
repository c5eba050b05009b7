"""How long an attempt may take, and all attempts together."""

from __future__ import annotations

import asyncio
import threading

from retoma import Context, Pipeline, Retry, RetryLater, minutes, seconds
from tests.conftest import OpenSandbox
from tests.engine.builders import state

INSTANT = 0.01


async def test_an_attempt_that_outlives_its_timeout_has_failed(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("hangs")
    cancelled: list[bool] = []

    @pipeline.step(timeout=INSTANT, retry=Retry(0))
    async def answer() -> int:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)
        return 1

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        error = (await sandbox.client.runs.get_errors(run.id))["answer", ""]
    assert (run.state, error["code"]) == ("failed", "TIMEOUT")
    assert "'answer' was still running after 0.01 s" in error["message"]
    assert cancelled == [True]


async def test_a_plain_function_that_outlives_its_timeout_is_abandoned(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("hangs")
    release = threading.Event()

    @pipeline.step(timeout=INSTANT, retry=Retry(0))
    def answer() -> int:
        release.wait()
        return 1

    async with open_sandbox(pipeline) as sandbox:
        try:
            run = await sandbox.run(pipeline)
            assert (await sandbox.client.runs.get_errors(run.id))["answer", ""]["code"] == "TIMEOUT"
        finally:
            release.set()


async def test_a_timeout_is_retried_like_any_failure(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("hangs-once")

    @pipeline.step(timeout=INSTANT, retry=Retry(1, delays=[5]))
    async def answer(*, ctx: Context) -> int:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return ctx.attempt

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert (run.state, run.results) == ("completed", {"answer": 2})


async def test_a_timeout_raised_by_the_step_itself_is_its_own_error(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("meets")

    @pipeline.step(retry=Retry(0))
    async def answer() -> int:
        raise TimeoutError("the provider took too long")

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        error = (await sandbox.client.runs.get_errors(run.id))["answer", ""]
    assert (error["code"], error["message"]) == ("ERROR", "the provider took too long")


async def test_all_attempts_and_their_delays_fit_in_the_total(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("total")

    @pipeline.step(retry=Retry(9, delays=[20], jitter=0), total_timeout=minutes(1))
    async def answer() -> int:
        raise OSError("away")

    async with open_sandbox(pipeline) as sandbox:
        before = await sandbox.clock.now()
        run = await sandbox.run(pipeline)
        (job,) = await sandbox.client.runs.list_jobs(run.id)
        error = (await sandbox.client.runs.get_errors(run.id))["answer", ""]
        assert await sandbox.clock.now() - before == seconds(40)
    # A third delay would end at 60 s, and the tries themselves take a little.
    assert (run.state, job.attempt, job.code) == ("failed", 3, "TOTAL_TIMEOUT")
    assert "0:01:00" in error["message"]
    assert "away" in error["message"]


async def test_waits_requested_by_a_step_do_not_count_towards_the_total(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("waits")
    requests: list[int] = []

    @pipeline.step(retry=Retry(1, delays=[1]), total_timeout=minutes(1))
    async def answer(*, ctx: Context) -> int:
        if len(requests) < 3:
            requests.append(1)
            raise RetryLater(minutes(10))
        if ctx.attempt == 1:
            raise OSError("away")
        return 1

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert await state(sandbox, run.id) == "completed"
