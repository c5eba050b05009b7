"""What the runs of a pipeline have come to, counted on a history that the test makes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from retoma import Decision, GiveUp, Pipeline, Retry, RetryLater, minutes
from retoma.records import PipelineMetrics
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox

APPROVE = Decision("approve", by="ana")
REJECT = Decision("reject", by="ana", notes="no")


def a_film(failing: list[str], waits: list[timedelta] | None = None) -> Pipeline:
    """`failing` says of the next attempts at a cut how each ends, the last first; a publication `waits` so long."""
    film = Pipeline("film", retry=Retry(2, delays=[60]))

    @film.step
    def script() -> str:
        return "once"

    film.review("script_review", of=script)

    @film.step
    def cut(script_review: str) -> str:
        match failing.pop() if failing else "":
            case "again":
                raise ValueError("not yet")
            case "for good":
                raise GiveUp("never", "NEVER")
        return script_review

    @film.step
    def poster(script_review: str) -> str:
        return script_review

    @film.step
    def publication(cut: str, poster: str) -> str:
        if waits:
            raise RetryLater(waits.pop(), "it is not the day")
        return cut + poster

    return film


async def run_film(sandbox: Sandbox, wait: timedelta, decision: Decision = APPROVE) -> None:
    """A film whose script a person thought about for so long."""
    run = await sandbox.client.start("film")
    await sandbox.work(advance_clock=False)
    await sandbox.clock.advance(wait)
    (review,) = await sandbox.client.reviews.list(run=run.id)
    await sandbox.client.reviews.decide(review.id, decision)
    await sandbox.work()


async def get_pipeline_metrics(sandbox: Sandbox, pipeline: str = "film", **options: list[str]) -> PipelineMetrics:
    return await sandbox.client.metrics.get_pipeline(
        pipeline, await sandbox.clock.now() - timedelta(days=30), **options
    )


async def test_the_time_that_people_take_is_not_the_pipelines(open_sandbox: OpenSandbox) -> None:
    failing = ["again"]
    async with open_sandbox(a_film(failing)) as sandbox:
        for wait in (minutes(90), minutes(5), minutes(1)):
            await run_film(sandbox, wait)
        figures = await get_pipeline_metrics(sandbox)
        assert figures.median_seconds == 0
        assert figures.mean_seconds == pytest.approx(60 / 3, rel=0.11)  # the delay of the one retry


async def test_steps_that_needed_a_retry_are_counted_once_and_reviews_are_no_steps(open_sandbox: OpenSandbox) -> None:
    failing = ["again", "again"]
    async with open_sandbox(a_film(failing)) as sandbox:
        await run_film(sandbox, minutes(1))
        await run_film(sandbox, minutes(1))
        figures = await get_pipeline_metrics(sandbox)
        assert (figures.steps, figures.retried) == (8, 1)


async def test_only_what_failed_for_good_has_failed(open_sandbox: OpenSandbox) -> None:
    failing: list[str] = []
    async with open_sandbox(a_film(failing)) as sandbox:
        await run_film(sandbox, minutes(1))
        await run_film(sandbox, minutes(1), REJECT)
        failing.append("for good")
        await run_film(sandbox, minutes(1))
        stopped = await sandbox.client.start("film")
        await sandbox.client.runs.cancel(stopped.id)
        await sandbox.client.start("film")
        figures = await get_pipeline_metrics(sandbox)
        assert (figures.ended, figures.failed) == (4, 1)


async def test_what_was_asked_for_after_the_end_begins_when_it_was_asked_for(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(a_film([])) as sandbox:
        await run_film(sandbox, minutes(1))
        (run,) = await sandbox.client.runs.list()
        await sandbox.clock.advance(timedelta(days=2))
        await sandbox.client.runs.rerun(run.id, "publication", by="ana")
        await sandbox.clock.advance(minutes(3))
        await sandbox.work()
        assert (await get_pipeline_metrics(sandbox)).mean_seconds == 180


async def test_steps_that_only_wait_may_be_left_out(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(a_film([], waits=[timedelta(hours=20)])) as sandbox:
        await run_film(sandbox, minutes(1))
        assert (await get_pipeline_metrics(sandbox)).mean_seconds == 20 * 3600
        assert (await get_pipeline_metrics(sandbox, exclude_steps=["publication"])).mean_seconds == 0


async def test_finished_steps_of_open_runs_count(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(a_film(["again"], waits=[timedelta(days=60)])) as sandbox:
        run = await sandbox.client.start("film")
        await sandbox.work(advance_clock=False)
        (review,) = await sandbox.client.reviews.list(run=run.id)
        figures = await get_pipeline_metrics(sandbox, exclude_steps=["publication"])
        assert (figures.ended, figures.steps, figures.retried, figures.timed) == (0, 1, 0, 0)
        await sandbox.client.reviews.decide(review.id, APPROVE)
        await sandbox.work(advance_clock=False)
        figures = await get_pipeline_metrics(sandbox)
        assert (figures.ended, figures.steps, figures.retried) == (0, 2, 0)  # the cut is yet to be tried again
        await sandbox.clock.advance(minutes(2))
        await sandbox.work(advance_clock=False)
        figures = await get_pipeline_metrics(sandbox)
        assert (figures.ended, figures.steps, figures.retried) == (0, 3, 1)


async def test_an_open_run_with_only_left_out_steps_to_go_is_timed(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(a_film([], waits=[timedelta(days=60)])) as sandbox:
        run = await sandbox.client.start("film")
        await sandbox.clock.advance(minutes(3))
        await sandbox.work(advance_clock=False)
        await sandbox.clock.advance(minutes(90))
        (review,) = await sandbox.client.reviews.list(run=run.id)
        await sandbox.client.reviews.decide(review.id, APPROVE)
        await sandbox.work(advance_clock=False)
        figures = await get_pipeline_metrics(sandbox, exclude_steps=["publication"])
        assert (figures.ended, figures.steps, figures.timed, figures.mean_seconds) == (0, 3, 1, 180)
        assert (await get_pipeline_metrics(sandbox)).timed == 0
        await sandbox.clock.advance(timedelta(days=31))
        figures = await get_pipeline_metrics(sandbox, exclude_steps=["publication"])
        assert (figures.steps, figures.timed) == (0, 0)


async def test_leaving_out_a_step_leaves_in_the_work_before_it(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(a_film(["again"], waits=[timedelta(hours=20)])) as sandbox:
        await run_film(sandbox, minutes(1))
        figures = await get_pipeline_metrics(sandbox, exclude_steps=["publication"])
        assert figures.mean_seconds == pytest.approx(60, rel=0.11)  # the delay of the retry of the cut


async def test_a_step_left_out_takes_nothing_off_where_it_did_not_run(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(a_film([])) as sandbox:
        run = await sandbox.client.start("film")
        await sandbox.clock.advance(minutes(3))
        await sandbox.work(advance_clock=False)
        for decision in (Decision("send_back", by="ana", notes="again"), APPROVE):
            (review,) = await sandbox.client.reviews.list(run=run.id)
            await sandbox.client.reviews.decide(review.id, decision)
            await sandbox.work(advance_clock=False)
        assert (await get_pipeline_metrics(sandbox, exclude_steps=["publication"])).mean_seconds == 180


async def test_other_pipelines_and_older_runs_do_not_count(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(a_film([])) as sandbox:
        await run_film(sandbox, minutes(1))
        assert (await get_pipeline_metrics(sandbox, "song")) == PipelineMetrics(0, 0, 0, 0, 0, None, None)
        await sandbox.clock.advance(timedelta(days=31))
        assert (await get_pipeline_metrics(sandbox)).ended == 0


async def test_an_approval_after_a_rerun_is_not_a_first_approval(
    open_sandbox: OpenSandbox,
) -> None:
    async with open_sandbox(a_film([])) as sandbox:
        await run_film(sandbox, minutes(1))
        (run,) = await sandbox.client.runs.list()
        await sandbox.client.runs.rerun(run.id, "script_review", by="ana")
        await sandbox.work(advance_clock=False)
        (again,) = await sandbox.client.reviews.list(run=run.id)
        await sandbox.client.reviews.decide(again.id, APPROVE)
        figures = await sandbox.client.reviews.get_metrics("film", await sandbox.clock.now() - timedelta(days=30))
        assert (figures.decided, figures.first_decided, figures.approved_at_once) == (2, 1, 1)
