from __future__ import annotations

import pytest

from retoma import Items, Pipeline, Retry, RetryLater, all_finished
from retoma.errors import InvalidInput
from tests.conftest import OpenSandbox
from tests.worker.isolated_steps import fragile


class World:
    """How often each text was tried."""

    def __init__(self) -> None:
        self.tries: dict[str, int] = {}

    def fail(self, text: str) -> str:
        self.tries[text] = self.tries.get(text, 0) + 1
        raise ValueError(f"{text} is bad")


def lines(world: World, retry: Retry) -> Pipeline:
    pipeline = Pipeline("lines", retry=retry)

    @pipeline.step
    def texts() -> list[str]:
        return ["a", "b"]

    @pipeline.each(texts)
    def line(text: str) -> str:
        return world.fail(text)

    @pipeline.step(proceed_when=all_finished(allow_failed=1.0))
    def count(line: Items[str]) -> int:
        return len(line.failures)

    return pipeline


@pytest.mark.parametrize(("retries", "tries"), [(0, 1), (2, 3), (9, 6), (None, 6)])
async def test_a_run_may_allow_fewer_retries_than_its_steps_and_never_more(
    open_sandbox: OpenSandbox, retries: int | None, tries: int
) -> None:
    world = World()
    pipeline = lines(world, Retry(5, delays=[1]))
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline, retries=retries)
        assert world.tries == {"a": tries, "b": tries}
        assert (run.state, run.results["count"]) == ("completed_with_errors", 2)


async def test_runs_of_one_pipeline_have_separate_limits(open_sandbox: OpenSandbox) -> None:
    world = World()
    pipeline = lines(world, Retry(5, delays=[1]))
    async with open_sandbox(pipeline) as sandbox:
        few = (await sandbox.client.start(pipeline, retries=1)).id
        many = (await sandbox.client.start(pipeline)).id
        await sandbox.work()
        for run, attempts in ((few, 2), (many, 6)):
            assert {job.attempt for job in await sandbox.client.runs.list_step_jobs(run, "line")} == {attempts}


async def test_the_log_says_that_a_job_failed_when_its_run_allows_no_further_retry(
    open_sandbox: OpenSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = lines(World(), Retry(5, delays=[1]))
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.run(pipeline, retries=1)
    logged = [vars(record) for record in caplog.records if record.name == "retoma.worker.attempt_log"]
    assert sorted((line["item"], line["attempt"], line["event"]) for line in logged) == [
        (item, attempt, event) for item in ("a", "b") for attempt, event in ((1, "attempt_failed"), (2, "job_failed"))
    ]


async def test_a_kept_job_keeps_the_limit_of_its_run(open_sandbox: OpenSandbox) -> None:
    pipeline, world = Pipeline("chain", retry=Retry(5, delays=[1])), World()

    @pipeline.step
    def text() -> str:
        return "a"

    @pipeline.step
    def line(text: str) -> str:
        return world.fail(text)

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline, retries=0)).id
        kept = await worker.record_outcomes(await worker.attempt(await worker.claim()), limit=1)
        await worker.record_outcomes(await worker.attempt(kept))
        (job,) = await sandbox.client.runs.list_step_jobs(run, "line")
    assert (job.state, job.attempt) == ("failed", 1)


async def test_each_rerun_has_all_its_retries(open_sandbox: OpenSandbox) -> None:
    world = World()
    pipeline = lines(world, Retry(5, delays=[1]))
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline, retries=1)
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.work()
        assert world.tries == {"a": 4, "b": 4}


async def test_waiting_does_not_count_as_a_retry(open_sandbox: OpenSandbox) -> None:
    waits = iter([True, True, False])
    pipeline = Pipeline("waits", retry=Retry(5))

    @pipeline.step
    def answer() -> int:
        if next(waits):
            raise RetryLater(60)
        return 1

    async with open_sandbox(pipeline) as sandbox:
        assert (await sandbox.run(pipeline, retries=0)).state == "completed"


async def test_crashes_count_towards_the_retry_limit(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile) as sandbox:
        run = await sandbox.run(fragile, retries=0)
        (job,) = await sandbox.client.runs.list_step_jobs(run.id, "broken")
        assert (run.state, job.attempt, job.code) == ("failed", 1, "CRASHED")


async def test_a_run_that_was_started_with_a_key_keeps_its_limit(open_sandbox: OpenSandbox) -> None:
    world = World()
    pipeline = lines(world, Retry(5, delays=[1]))
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline, key="k", retries=0)
        await sandbox.client.start(pipeline, key="k", retries=3)
        await sandbox.work()
        assert world.tries == {"a": 1, "b": 1}


@pytest.mark.parametrize("retries", [-1, 1_001])
async def test_an_impossible_number_of_retries_is_rejected(open_sandbox: OpenSandbox, retries: int) -> None:
    pipeline = lines(World(), Retry(0))
    async with open_sandbox(pipeline) as sandbox:
        with pytest.raises(InvalidInput, match="retries must be a whole number from 0"):
            await sandbox.client.start(pipeline, retries=retries)
