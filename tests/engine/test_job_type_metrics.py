"""Throughput, queue time and processing time of every step."""

from __future__ import annotations

from datetime import timedelta

import pytest

from retoma import Items, Pipeline, PollResult, Pool, Retry, minutes
from retoma.metrics import JobTypeMetrics
from retoma.store import metrics
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import find_claim, rows, run_claims, run_next
from tests.engine.test_external_work import Host, film, start_parked
from tests.engine.test_hot_statements import FEW, TABLES, Table, measure_reads, prepare_history

SECOND = timedelta(seconds=1)


def stories() -> Pipeline:
    pipeline = Pipeline("stories", timeout=minutes(60))

    @pipeline.step
    def script() -> list[str]:
        return ["one", "two"]

    @pipeline.each(script, queue="image")
    def image(scene: str) -> str:
        return scene.upper()

    @pipeline.step(queue="render")
    def video(image: Items[str]) -> int:
        return len(image)

    return pipeline


async def get_types(sandbox: Sandbox, window: timedelta = timedelta(minutes=5)) -> dict[str, JobTypeMetrics]:
    return {found.step: found for found in await sandbox.client.metrics.list_job_types(window)}


async def run_story(sandbox: Sandbox, waits: int, takes: int) -> None:
    """Let every job of a story wait and take so many seconds."""
    await sandbox.client.start("stories")
    async with sandbox.manual_worker() as worker:
        for _ in range(3):
            await sandbox.clock.advance(waits * SECOND)
            claims = await worker.claim(10)
            await sandbox.clock.advance(takes * SECOND)
            await run_claims(worker, claims)


async def test_every_step_has_its_throughput_and_times(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(stories()) as sandbox:
        await run_story(sandbox, waits=10, takes=4)
        found = await get_types(sandbox)
    assert {step: (each.queue, each.jobs_processed) for step, each in found.items()} == {
        "script": ("default", 1),
        "image": ("image", 2),
        "video": ("render", 1),
    }
    for each in found.values():
        assert each.avg_queue_time == each.p50_queue_time == each.p95_queue_time == 10 * SECOND
        assert each.avg_processing_time == each.p50_processing_time == each.p95_processing_time == 4 * SECOND
        assert each.busy_time == each.jobs_processed * 4 * SECOND
    assert found["image"].jobs_processed_per_minute == pytest.approx(2 / 5)


async def test_a_queue_has_the_times_of_all_its_steps(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("pair", timeout=minutes(60))

    @pipeline.step
    def quick() -> int:
        return 1

    @pipeline.step
    def slow() -> int:
        return 2

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start("pair")
        claims = await worker.claim(2)
        for step, takes in (("quick", 2), ("slow", 8)):
            await sandbox.clock.advance(takes * SECOND)
            await run_claims(worker, claims, step)
        found = (await sandbox.client.metrics.list_queue_times())["default"]
    assert (found.p50_processing_time, found.p50_queue_time) == (6 * SECOND, 0 * SECOND)
    assert found.jobs_processed_per_minute == pytest.approx(2 / 5)


async def test_mean_median_and_95th_percentile_differ(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(stories()) as sandbox:
        for takes in (1, 2, 9):
            await run_story(sandbox, waits=0, takes=takes)
        found = (await get_types(sandbox))["video"]
    assert (found.avg_processing_time, found.p50_processing_time) == (4 * SECOND, 2 * SECOND)
    assert found.p95_processing_time == pytest.approx(8.3 * SECOND, abs=SECOND / 100)


async def test_only_jobs_that_ended_within_the_window_count(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(stories()) as sandbox:
        await run_story(sandbox, waits=1, takes=1)
        await sandbox.clock.advance(timedelta(minutes=6))
        recent, hour = (await get_types(sandbox))["script"], (await get_types(sandbox, timedelta(hours=1)))["script"]
    assert (recent.jobs_processed, recent.jobs_processed_per_minute, recent.avg_queue_time) == (0, 0, None)
    assert (hour.jobs_processed, hour.avg_processing_time) == (1, SECOND)


async def test_an_item_waits_from_its_last_dependency_on(open_sandbox: OpenSandbox) -> None:
    labels = Pipeline("labels", timeout=minutes(60))

    @labels.step
    def documents() -> list[str]:
        return ["a"]

    @labels.step
    def taxonomy() -> str:
        return "taxonomy"

    @labels.each(documents)
    def label(document: str, taxonomy: str) -> str:
        return document + taxonomy

    async with open_sandbox(labels) as sandbox:
        await sandbox.client.start("labels")
        async with sandbox.manual_worker() as worker:
            claims = await worker.claim(2)
            await run_claims(worker, [find_claim(claims, "documents")])
            await sandbox.clock.advance(timedelta(minutes=2))
            await run_claims(worker, [find_claim(claims, "taxonomy")])
            await sandbox.clock.advance(7 * SECOND)
            await run_next(worker, "label:a")
        found = await get_types(sandbox)
    assert found["label"].avg_queue_time == 7 * SECOND


async def test_a_delayed_run_waits_from_when_it_is_due(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(stories()) as sandbox:
        await sandbox.client.start("stories", run_at=await sandbox.clock.now() + timedelta(minutes=2))
        await sandbox.clock.advance(timedelta(minutes=2))
        await sandbox._release_due_jobs(advance_clock=False)
        await sandbox.clock.advance(5 * SECOND)
        async with sandbox.manual_worker() as worker:
            await run_next(worker, "script")
        assert (await get_types(sandbox))["script"].avg_queue_time == 5 * SECOND


async def test_a_retried_job_counts_once_with_all_its_attempts(open_sandbox: OpenSandbox) -> None:
    flaky = Pipeline("flaky", timeout=minutes(60))
    tries = iter([ValueError("not yet"), None])

    @flaky.step(retry=Retry(1, delays=[0]))
    def text() -> str:
        if error := next(tries):
            raise error
        return "text"

    async with open_sandbox(flaky) as sandbox:
        await sandbox.client.start("flaky")
        async with sandbox.manual_worker() as worker:
            for takes in (3, 5):
                claims = await worker.claim(1)
                await sandbox.clock.advance(takes * SECOND)
                await run_claims(worker, claims)
                await sandbox._release_due_jobs(advance_clock=False)
        found = (await get_types(sandbox))["text"]
    assert (found.jobs_processed, found.busy_time) == (1, 8 * SECOND)


async def test_external_work_takes_time_but_occupies_no_worker(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await start_parked(sandbox, pipeline)
        await sandbox.clock.advance(timedelta(minutes=1))
        host.reports["scene-1"] = PollResult("succeeded", result="video.mp4")
        async with sandbox.manual_worker() as worker:
            await worker.poll_external_work()
            claims = await worker.claim(1)
            await sandbox.clock.advance(2 * SECOND)
            await run_claims(worker, claims)
        found = (await get_types(sandbox))["clip"]
    assert found.avg_processing_time == timedelta(seconds=62)
    assert found.busy_time == 2 * SECOND


async def test_the_age_of_the_oldest_waiting_job_shows_a_standstill(open_sandbox: OpenSandbox) -> None:
    pooled = Pipeline("pooled")

    @pooled.step(pool=Pool("gpu", capacity=1))
    def clip() -> str:
        return "clip"

    async with open_sandbox(stories(), pooled) as sandbox:
        await sandbox.client.start("stories")
        await sandbox.client.start("pooled")
        await sandbox.clock.advance(timedelta(hours=3))
        await sandbox.client.start("stories")
        found = await get_types(sandbox)
    assert {step: each.oldest_queue_time for step, each in found.items()} == {
        "script": timedelta(hours=3),
        "image": None,
        "video": None,
        "clip": timedelta(hours=3),
    }
    assert found["script"].jobs_processed == 0


async def test_a_step_behind_many_others_in_its_queue_is_seen(open_sandbox: OpenSandbox) -> None:
    mixed = Pipeline("mixed")

    @mixed.step
    def first() -> int:
        return 1

    @mixed.step
    def second() -> int:
        return 2

    async with open_sandbox(mixed) as sandbox:
        await sandbox.client.start_many("mixed", [None] * 10)
        await sandbox.clock.advance(SECOND)
        found = await get_types(sandbox)
    assert {step: each.oldest_queue_time for step, each in found.items()} == {"first": SECOND, "second": SECOND}


async def test_reviews_are_not_job_types(open_sandbox: OpenSandbox) -> None:
    reviewed = stories()
    reviewed.review("approved", of="script")
    async with open_sandbox(reviewed) as sandbox:
        await sandbox.client.start("stories")
        await sandbox.work(advance_clock=False)
        assert set(await get_types(sandbox)) == {"script", "image", "video"}


async def test_beyond_the_limit_the_newest_events_give_the_rate(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sandbox(stories()) as sandbox:
        for _ in range(2):
            await run_story(sandbox, waits=5, takes=5)
        assert (await get_types(sandbox))["video"].jobs_processed == 2
        monkeypatch.setattr(metrics, "MAX_EVENTS", 5)
        found = (await get_types(sandbox))["video"]
    # The end of the run, its video, two images and its script: the last 20 seconds.
    assert (found.jobs_processed, found.window) == (1, 20 * SECOND)
    assert found.jobs_processed_per_minute == pytest.approx(3)


async def test_a_late_event_does_not_hide_those_before_it(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(stories()) as sandbox:
        await run_story(sandbox, waits=1, takes=1)
        await rows(
            sandbox,
            "insert into retoma.events (run, at, revision, kind) "
            "select id, retoma.now() - interval '1 hour', 1, 'action' from retoma.runs",
        )
        assert (await get_types(sandbox))["script"].jobs_processed == 1


@pytest.mark.parametrize("table", TABLES)
async def test_the_cost_does_not_grow_with_history(open_sandbox: OpenSandbox, table: Table) -> None:
    async with prepare_history(open_sandbox, table) as (sandbox, _, connection):
        await sandbox.clock.advance(timedelta(minutes=10))
        since = await sandbox.clock.now()
        async with sandbox.manual_worker() as worker:
            await sandbox.client.start("labels")
            await run_next(worker)
            await run_next(worker)
        async with measure_reads(connection) as read:
            found = await connection.fetch("select * from retoma.job_metrics($1, 20000)", since)
    assert {row["step"]: row["ended"] for row in found} == {"documents": 1, "taxonomy": 1, "label": 2, None: 4}
    assert read.whole_tables == {}
    assert sum(read.entries.values()) <= 2 * FEW, str(read.entries)
