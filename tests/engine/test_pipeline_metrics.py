"""Metrics of the runs of a pipeline, on a history that the test creates."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from retoma import GiveUp, Pipeline, Retry, RetryLater, minutes
from retoma.records import PipelineMetrics
from retoma.reviews import Decision
from retoma.store.statements import statements
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import rows
from tests.engine.test_hot_statements import FEW, HISTORY, measure_reads

APPROVE = Decision("approve", by="ana")
REJECT = Decision("reject", by="ana", notes="no")


def make_film(failing: list[str], waits: list[timedelta] | None = None) -> Pipeline:
    """`failing` lists how the next attempts at a cut end, the last first; a publication `waits` that long."""
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


async def test_time_spent_waiting_for_people_is_not_part_of_the_pipeline_duration(open_sandbox: OpenSandbox) -> None:
    failing = ["again"]
    async with open_sandbox(make_film(failing)) as sandbox:
        for wait in (minutes(90), minutes(5), minutes(1)):
            await run_film(sandbox, wait)
        metrics = await get_pipeline_metrics(sandbox)
        assert metrics.median_seconds == 0
        assert metrics.mean_seconds == pytest.approx(60 / 3, rel=0.11)  # the delay of the one retry


async def test_retried_steps_are_counted_once_and_reviews_are_not_steps(open_sandbox: OpenSandbox) -> None:
    failing = ["again", "again"]
    async with open_sandbox(make_film(failing)) as sandbox:
        await run_film(sandbox, minutes(1))
        await run_film(sandbox, minutes(1))
        metrics = await get_pipeline_metrics(sandbox)
        assert (metrics.steps, metrics.retried) == (8, 1)


async def test_only_permanent_failures_count_as_failed(open_sandbox: OpenSandbox) -> None:
    failing: list[str] = []
    async with open_sandbox(make_film(failing)) as sandbox:
        await run_film(sandbox, minutes(1))
        await run_film(sandbox, minutes(1), REJECT)
        failing.append("for good")
        await run_film(sandbox, minutes(1))
        stopped = await sandbox.client.start("film")
        await sandbox.client.runs.cancel(stopped.id)
        await sandbox.client.start("film")
        metrics = await get_pipeline_metrics(sandbox)
        assert (metrics.ended, metrics.failed) == (4, 1)


async def test_work_requested_after_the_end_starts_when_it_was_requested(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_film([])) as sandbox:
        await run_film(sandbox, minutes(1))
        (run,) = await sandbox.client.runs.list()
        await sandbox.clock.advance(timedelta(days=2))
        await sandbox.client.runs.rerun(run.id, "publication", by="ana")
        await sandbox.clock.advance(minutes(3))
        await sandbox.work()
        assert (await get_pipeline_metrics(sandbox)).mean_seconds == 180


async def test_steps_that_only_wait_may_be_excluded(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_film([], waits=[timedelta(hours=20)])) as sandbox:
        await run_film(sandbox, minutes(1))
        assert (await get_pipeline_metrics(sandbox)).mean_seconds == 20 * 3600
        assert (await get_pipeline_metrics(sandbox, exclude_steps=["publication"])).mean_seconds == 0


async def test_finished_steps_of_open_runs_count(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_film(["again"], waits=[timedelta(days=60)])) as sandbox:
        run = await sandbox.client.start("film")
        await sandbox.work(advance_clock=False)
        (review,) = await sandbox.client.reviews.list(run=run.id)
        metrics = await get_pipeline_metrics(sandbox, exclude_steps=["publication"])
        assert (metrics.ended, metrics.steps, metrics.retried, metrics.timed) == (0, 1, 0, 0)
        await sandbox.client.reviews.decide(review.id, APPROVE)
        await sandbox.work(advance_clock=False)
        metrics = await get_pipeline_metrics(sandbox)
        assert (metrics.ended, metrics.steps, metrics.retried) == (0, 2, 0)  # the cut is yet to be tried again
        await sandbox.clock.advance(minutes(2))
        await sandbox.work(advance_clock=False)
        metrics = await get_pipeline_metrics(sandbox)
        assert (metrics.ended, metrics.steps, metrics.retried) == (0, 3, 1)


async def test_an_open_run_with_only_excluded_steps_left_is_timed(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_film([], waits=[timedelta(days=60)])) as sandbox:
        run = await sandbox.client.start("film")
        await sandbox.clock.advance(minutes(3))
        await sandbox.work(advance_clock=False)
        await sandbox.clock.advance(minutes(90))
        (review,) = await sandbox.client.reviews.list(run=run.id)
        await sandbox.client.reviews.decide(review.id, APPROVE)
        await sandbox.work(advance_clock=False)
        metrics = await get_pipeline_metrics(sandbox, exclude_steps=["publication"])
        assert (metrics.ended, metrics.steps, metrics.timed, metrics.mean_seconds) == (0, 3, 1, 180)
        assert (await get_pipeline_metrics(sandbox)).timed == 0
        await sandbox.clock.advance(timedelta(days=31))
        metrics = await get_pipeline_metrics(sandbox, exclude_steps=["publication"])
        assert (metrics.steps, metrics.timed) == (0, 0)


async def test_excluding_a_step_keeps_the_work_before_it(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_film(["again"], waits=[timedelta(hours=20)])) as sandbox:
        await run_film(sandbox, minutes(1))
        metrics = await get_pipeline_metrics(sandbox, exclude_steps=["publication"])
        assert metrics.mean_seconds == pytest.approx(60, rel=0.11)  # the delay of the retry of the cut


async def test_an_excluded_step_subtracts_nothing_where_it_did_not_run(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_film([])) as sandbox:
        run = await sandbox.client.start("film")
        await sandbox.clock.advance(minutes(3))
        await sandbox.work(advance_clock=False)
        for decision in (Decision("send_back", by="ana", notes="again"), APPROVE):
            (review,) = await sandbox.client.reviews.list(run=run.id)
            await sandbox.client.reviews.decide(review.id, decision)
            await sandbox.work(advance_clock=False)
        assert (await get_pipeline_metrics(sandbox, exclude_steps=["publication"])).mean_seconds == 180


async def test_other_pipelines_and_older_runs_do_not_count(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_film([])) as sandbox:
        await run_film(sandbox, minutes(1))
        assert (await get_pipeline_metrics(sandbox, "song")) == PipelineMetrics(0, 0, 0, 0, 0, None, None)
        await sandbox.clock.advance(timedelta(days=31))
        assert (await get_pipeline_metrics(sandbox)).ended == 0


async def test_an_approval_after_a_rerun_is_not_a_first_approval(
    open_sandbox: OpenSandbox,
) -> None:
    async with open_sandbox(make_film([])) as sandbox:
        await run_film(sandbox, minutes(1))
        (run,) = await sandbox.client.runs.list()
        await sandbox.client.runs.rerun(run.id, "script_review", by="ana")
        await sandbox.work(advance_clock=False)
        (again,) = await sandbox.client.reviews.list(run=run.id)
        await sandbox.client.reviews.decide(again.id, APPROVE)
        metrics = await sandbox.client.reviews.get_metrics("film", await sandbox.clock.now() - timedelta(days=30))
        assert (metrics.decided, metrics.first_decided, metrics.approved_at_once) == (2, 1, 1)


async def test_old_runs_are_not_read_however_long_a_recent_one_took(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_film([])) as sandbox:
        for _ in range(3):
            await run_film(sandbox, minutes(1))
        await rows(sandbox, OLD_RUNS, HISTORY)
        connection = await sandbox.database.connect()
        statement = statements("metrics")["get_pipeline_metrics"]
        since = await sandbox.clock.now() - timedelta(days=1)
        values = {"pipeline": "film", "since": since, "excluded_steps": ["publication"], "tenants": None}
        try:
            await connection.execute("analyze retoma.runs, retoma.jobs, retoma.reviews, retoma.events, retoma.versions")
            async with connection.transaction(), measure_reads(connection) as read:
                (found,) = await connection.fetch(statement.sql, *statement.bind(values))
        finally:
            await connection.close()
    assert (found["ended"], found["steps"]) == (4, 4 * 3 + 1)
    assert read.whole_tables.keys().isdisjoint({"runs", "jobs"})
    assert sum(read.entries.values()) <= 3 * FEW, str(read.entries)


async def test_the_work_grows_with_the_number_of_runs_and_not_with_its_square(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_film([])) as sandbox:
        await run_film(sandbox, minutes(1))
        await rows(sandbox, OLD_RUNS, 500)
        since = await sandbox.clock.now() - timedelta(days=60)
        statement = statements("metrics")["get_pipeline_metrics"]
        values = {"pipeline": "film", "since": since, "excluded_steps": ["publication"], "tenants": None}
        async with sandbox.database.connection() as connection:
            await connection.execute("analyze retoma.runs, retoma.jobs")
            plan = await connection.fetchval(
                f"explain (analyze, timing off, format json) {statement.sql}", *statement.bind(values)
            )
    assert count_rows(json.loads(plan)[0]["Plan"]) < 501 * 50


def count_rows(plan: dict[str, Any]) -> int:
    """Return how many rows the nodes of a plan have read or computed."""
    removed = sum(count for name, count in plan.items() if name.startswith("Rows Removed"))
    own = (plan["Actual Rows"] + removed) * plan["Actual Loops"]
    return int(own) + sum(count_rows(each) for each in plan.get("Plans", []))


# Copies of a run that ended 40 days ago, except one, which was as long ago created and ended now.
OLD_RUNS = """
with one as (select * from retoma.runs where ended_at is not null limit 1), created as (
  insert into retoma.runs (id, tenant, version, state, open_sinks, input, created_at, run_at, ended_at)
  select overlay(gen_random_uuid()::text placing left(retoma.first_run_id(now() - t.age)::text, 13) from 1)::uuid,
         tenant, version, 'completed', 0, input, t.at, t.at, case number when 1 then ended_at else t.at end
    from one, generate_series(1, $1) number,
         lateral (select a.age, one.created_at - a.age as at
                    from (select interval '40 days' + number * interval '1 minute' as age) a) t
  returning id, tenant, version, ended_at)
insert into retoma.jobs (run, step, revision, version, tenant, queue, rank, state, worker, created_at, started_at,
                         ended_at, attempt)
select id, 'script', 1, version, tenant, 'default', 1, 'succeeded', 0, ended_at, ended_at, ended_at, 1
  from created
"""
