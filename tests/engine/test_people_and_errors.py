"""The report of a run: errors are separate from retries, and the time of people from working time."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from retoma import GiveUp, Pipeline, Retry
from retoma.engine.metrics import read_metrics
from retoma.records import ErrorCounts
from retoma.reviews import Decision
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox

APPROVE = Decision("approve", by="ana")


def invoices() -> Pipeline:
    pipeline = Pipeline("invoices", retry=Retry(3))
    tried: dict[str, int] = {}

    @pipeline.step
    def rows() -> list[str]:
        return ["good", "flaky", "bad"]

    @pipeline.each(rows)
    def parsed(row: str) -> str:
        tried[row] = tried.get(row, 0) + 1
        if row == "bad":
            raise GiveUp("no amount")
        if row == "flaky" and tried[row] < 3:
            raise ValueError("busy")
        return row.upper()

    return pipeline


async def test_an_error_that_was_retried_is_not_an_error_of_the_run(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(invoices()) as sandbox:
        run = (await sandbox.run("invoices")).id
        errors = await sandbox.client.runs.get_errors(run)
        counts = await sandbox.client.runs.get_error_counts(run)
        first = await sandbox.client.runs.get_errors(run, limit=1)
    assert {item: error["retried"] for (_, item), error in errors.items()} == {"bad": False, "flaky": True}
    assert [item for _, item in first] == ["bad"]
    assert counts == ErrorCounts(failed=1, recovered=1, retried_attempts=2)


async def test_an_error_resolved_by_a_rerun_is_no_longer_an_error_of_the_run(open_sandbox: OpenSandbox) -> None:
    pipeline, broken = Pipeline("film"), [True]

    @pipeline.step
    def script() -> str:
        if broken[0]:
            raise GiveUp("no")
        return "once"

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.run("film")).id
        before = await sandbox.client.runs.get_error_counts(run)
        broken[0] = False
        await sandbox.client.runs.rerun_failed(run, by="ana")
        await sandbox.work()
        after = await sandbox.client.runs.get_error_counts(run)
        through = await sandbox.client.runs.get_errors(run, revision=1)
    assert (before.failed, after.failed, after.recovered) == (1, 0, 1)
    assert [error["retried"] for error in through.values()] == [False]


async def start_run_with_review(sandbox: Sandbox) -> UUID:
    run = (await sandbox.client.start("film")).id
    await sandbox.work(advance_clock=False)
    await sandbox.clock.advance(timedelta(minutes=50))
    return run


def film() -> Pipeline:
    pipeline = Pipeline("film")

    @pipeline.step
    def scenes() -> list[str]:
        return ["a", "b"]

    @pipeline.each(scenes)
    def image(scene: str) -> str:
        return scene

    pipeline.review("approved", of=image)
    return pipeline


async def test_no_end_is_predicted_while_reviews_are_open(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film()) as sandbox:
        run = await start_run_with_review(sandbox)
        (first, *_) = await sandbox.client.reviews.list(run=run)
        await sandbox.client.reviews.decide(first.id, APPROVE)
        await sandbox.work(advance_clock=False)
        assert len(await sandbox.client.reviews.list(run=run)) == 1
        assert await sandbox.client.runs.estimate_end(run) is None


async def test_time_spent_waiting_for_people_is_not_part_of_the_run_duration(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film()) as sandbox:
        run = await start_run_with_review(sandbox)
        for review in await sandbox.client.reviews.list(run=run):
            await sandbox.client.reviews.decide(review.id, APPROVE)
        await sandbox.work()
        found = await read_metrics(sandbox.database)
    seconds = {tally.what: tally.seconds for tally in found.counters if tally.what in ("run_review", "run_duration")}
    assert seconds == {"run_review": 3000, "run_duration": 0}
