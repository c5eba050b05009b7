"""Steps that continue the work of others on an item share its retries and its time."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from retoma import Pipeline, Retry, minutes, seconds
from retoma.errors import DefinitionError
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox


class Batch(BaseModel):
    documents: list[str] = ["a", "b"]


class StepRecorder:
    """Record the calls of the two steps of `a_batch`, and make them fail as configured."""

    def __init__(self, *, failing: dict[tuple[str, str], int] | None = None) -> None:
        self.failing = failing or {}
        self.attempts = Counter[tuple[str, str]]()
        self.sandbox: Sandbox | None = None
        self.reading = timedelta(0)
        self.began: list[datetime] = []

    async def work(self, step: str, document: str) -> str:
        assert self.sandbox is not None
        self.attempts[step, document] += 1
        if document == "b":
            self.began.append(await self.sandbox.clock.now())
        if step == "text":
            await self.sandbox.clock.advance(self.reading)
        if self.attempts[step, document] <= self.failing.get((step, document), 0):
            raise OSError(f"{step} of {document} failed")
        return document


def make_batch(retries: int = 2, **options: Any) -> Pipeline:
    pipeline = Pipeline("batch", inputs=Batch)
    retry = Retry(retries, delays=[5, 10, 20], jitter=0)

    @pipeline.each("documents", retry=retry, **options)
    async def text(document: str, *, desk: StepRecorder) -> str:
        return await desk.work("text", document)

    @pipeline.each("documents", retry=retry, continues=text, **options)
    async def label(text: str, *, desk: StepRecorder) -> str:
        return await desk.work("label", text)

    return pipeline


async def items(sandbox: Sandbox, run: Any) -> dict[str, Any]:
    return {item.item: item for item in await sandbox.client.runs.list_items(run.id, "documents", limit=10)}


@pytest.mark.parametrize(
    ("failing", "attempts", "labels", "state"),
    [
        ({("text", "b"): 2, ("label", "b"): 9}, 3, 1, "failed"),
        ({("text", "b"): 1, ("label", "b"): 9}, 3, 2, "failed"),
        ({("text", "b"): 2}, 3, 1, "succeeded"),
        ({("text", "b"): 1, ("label", "b"): 1}, 3, 2, "succeeded"),
        ({}, 1, 1, "succeeded"),
    ],
)
@pytest.mark.parametrize("limit", ["of the steps", "of the run"])
async def test_failures_of_the_earlier_step_use_up_retries_of_the_later_one(
    open_sandbox: OpenSandbox,
    failing: dict[tuple[str, str], int],
    attempts: int,
    labels: int,
    state: str,
    limit: str,
) -> None:
    desk = StepRecorder(failing=failing)
    pipeline = make_batch(2 if limit == "of the steps" else 9)
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        desk.sandbox = sandbox
        run = await sandbox.run(pipeline, retries=2 if limit == "of the run" else None)
        found = await items(sandbox, run)
    assert (found["b"].state, found["b"].attempt, desk.attempts["label", "b"]) == (state, attempts, labels)
    assert (found["a"].state, found["a"].attempt) == ("succeeded", 1)


async def test_the_delays_continue_where_those_of_the_earlier_step_ended(open_sandbox: OpenSandbox) -> None:
    desk = StepRecorder(failing={("text", "b"): 1, ("label", "b"): 1})
    pipeline = make_batch()
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        desk.sandbox = sandbox
        await sandbox.run(pipeline)
    assert [(at - desk.began[0]).total_seconds() for at in desk.began] == [0, 5, 5, 15]


async def test_a_rerun_has_all_its_retries_again(open_sandbox: OpenSandbox) -> None:
    desk = StepRecorder(failing={("text", "b"): 2, ("label", "b"): 3})
    pipeline = make_batch()
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        desk.sandbox = sandbox
        run = await sandbox.run(pipeline)
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.work()
        found = await items(sandbox, run)
    assert (found["b"].state, found["b"].attempt, desk.attempts["label", "b"]) == ("succeeded", 3, 4)


async def test_a_later_step_has_the_time_that_the_earlier_one_left(open_sandbox: OpenSandbox) -> None:
    desk = StepRecorder()
    desk.reading = seconds(100)
    pipeline = make_batch(work_limit=minutes(2), timeout=minutes(2))
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox, sandbox.manual_worker() as worker:
        desk.sandbox = sandbox
        run = await sandbox.client.start(pipeline, Batch(documents=["a"]))
        for _ in range(2):  # the list, the text
            await worker.record_outcomes(await worker.attempt(await worker.claim(1)))
        (label,) = await worker.claim(1)
        attempt = worker._runner.prepare(label)
        assert attempt is not None
        assert attempt.time_limit == 120  # nobody has asked yet
        await attempt.run()
        assert attempt.time_limit == 20
        await worker.record_outcomes([attempt.build_timeout_outcome()])
        (found,) = await sandbox.client.runs.list_items(run.id, "documents", limit=10)
    assert (found.state, found.code, found.attempt) == ("failed", "TIMEOUT", 1)
    assert "the rest of the 120 s allowed for all work on this item" in found.error["message"]


async def test_waiting_for_a_retry_is_not_working_time(open_sandbox: OpenSandbox) -> None:
    desk = StepRecorder(failing={("text", "b"): 3, ("label", "b"): 1})
    pipeline = make_batch(9, work_limit=seconds(30))
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        desk.sandbox = sandbox
        run = await sandbox.run(pipeline)
        found = await items(sandbox, run)
    assert (desk.began[-1] - desk.began[0]).total_seconds() > 30
    assert (found["b"].state, found["b"].attempt) == ("succeeded", 5)


async def test_a_hanging_step_is_not_retried_once_its_time_is_used_up(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("hanging")

    @pipeline.step(work_limit=0.01, timeout=0.01, retry=Retry(5, delays=[0]))
    async def forever() -> int:
        await asyncio.Event().wait()
        return 1

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = await sandbox.client.start(pipeline)
        (claim,) = await worker.claim(1)
        await worker.record_outcomes(await worker.attempt([claim]))
        (job,) = await sandbox.client.runs.list_step_jobs(run.id, "forever", limit=1)
    assert (job.state, job.code, job.attempt) == ("failed", "TIMEOUT", 1)


def test_an_impossible_continuation_is_rejected_with_the_reason() -> None:
    pipeline = Pipeline("wrong", inputs=Batch)

    @pipeline.each("documents", work_limit=60)
    def text(document: str) -> str:
        return document

    with pytest.raises(DefinitionError, match="both need the same work_limit="):

        @pipeline.each("documents", continues=text)
        def label(text: str) -> str:
            return text

    with pytest.raises(DefinitionError, match="an each step over the same items whose result this one takes"):

        @pipeline.each("documents", continues=text, work_limit=60)
        def alone(document: str) -> str:
            return document

    with pytest.raises(DefinitionError, match="continues= is only for each steps"):

        @pipeline.step(continues=text)
        def plain(text: str) -> str:
            return text

    with pytest.raises(DefinitionError, match="set only one of them"):

        @pipeline.each("documents", work_limit=60, total_timeout=60)
        def both(document: str) -> str:
            return document
