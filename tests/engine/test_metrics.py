"""The figures behind metrics: true, cheap, and totals that only grow."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from retoma import GiveUp, Items, Pipeline, Pool, Retry, Settings, Webhook, connect, minutes
from retoma.engine import watchdog
from retoma.engine.metrics import read_metrics, read_snapshot
from retoma.metrics import MetricCounter, Metrics, OpenReviewMetrics
from retoma.records import WaitReason
from retoma.reviews import Decision
from retoma.server.prometheus_format import BUCKET_BOUNDS
from retoma.states import RunState
from retoma.store import metrics
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import find_claim, rows, run_claims, run_next


def make_pipeline(name: str = "film") -> Pipeline:
    pipeline = Pipeline(name)

    @pipeline.step
    def script() -> str:
        return "once upon a time"

    @pipeline.step(queue="audio")
    def narration(script: str) -> str:
        return script.upper()

    return pipeline


def count_ended(digits: Metrics) -> dict[str, int]:
    return {tally.outcome: tally.count for tally in digits.counters if tally.what == "run_end"}


def get_histogram(digits: Metrics, what: str) -> dict[float, int]:
    return {tally.bucket: tally.count for tally in digits.counters if tally.what == what}


async def test_ended_runs_are_counted_by_state(open_sandbox: OpenSandbox) -> None:
    bad = Pipeline("bad")

    @bad.step
    def nothing() -> str:
        raise GiveUp("no")

    async with open_sandbox(make_pipeline(), bad) as sandbox:
        for name in ("film", "film", "bad"):
            await sandbox.run(name)
        found = await read_metrics(sandbox.database)
    assert [(t.pipeline, t.outcome, t.count) for t in found.counters if t.what == "run_end"] == [
        ("bad", "failed", 1),
        ("film", "completed", 2),
    ]
    assert found.open_runs == {}


async def test_an_end_is_counted_once_however_often_metrics_are_read(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.run("film")
        for _ in range(3):
            found = await read_metrics(sandbox.database)
    assert count_ended(found) == {"completed": 1}


async def test_an_end_that_is_committed_late_is_still_counted(open_sandbox: OpenSandbox) -> None:
    """Its event has a lower number than others that were committed, and were looked at, before it."""
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.run("film")
        await read_metrics(sandbox.database)
        first = (await sandbox.client.start("film")).id
        async with sandbox.database.connection() as late:
            async with late.transaction():
                await late.execute("select retoma.cancel_run($1, null, 'test')", first)
                await sandbox.run("film")
                await read_metrics(sandbox.database)
                before = count_ended(await read_metrics(sandbox.database))
            after = count_ended(await read_metrics(sandbox.database))
    assert before == {"completed": 1}
    assert after == {"completed": 2, "cancelled": 1}


async def test_a_long_transaction_that_ends_no_run_delays_nothing(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox, sandbox.database.connection() as other, other.transaction():
        await other.execute("insert into retoma.tenants (name) values ('slow')")
        await sandbox.run("film")
        assert count_ended(await read_metrics(sandbox.database)) == {"completed": 1}


async def test_a_transaction_that_stays_open_is_reported(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox, sandbox.database.connection() as other, other.transaction():
        open_for = await other.fetchval("select clock_timestamp() - now()")
        assert (await read_metrics(sandbox.database)).oldest_transaction > open_for


async def test_many_ends_are_counted_in_several_reads(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MAX_ENDS", 2)
    async with open_sandbox(make_pipeline()) as sandbox:
        await read_metrics(sandbox.database)
        await sandbox.client.start_many("film", [None] * 7)
        await sandbox.work()
        seen = [count_ended(await read_metrics(sandbox.database)).get("completed", 0) for _ in range(4)]
    assert seen == sorted(seen)
    assert seen[0] < seen[-1] == 7


async def test_two_concurrent_reads_count_nothing_twice(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.run("film")
        async with sandbox.database.connection() as other, other.transaction():
            await other.execute("select retoma.update_metric_counters(100)")
            during = count_ended(await read_metrics(sandbox.database))
        after = count_ended(await read_metrics(sandbox.database))
    assert during == {}
    assert after == {"completed": 1}


async def test_waiting_and_working_time_are_distinguished(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.start("film")
        await sandbox.clock.advance(timedelta(seconds=40))
        async with sandbox.manual_worker() as worker:
            await run_next(worker, "script")
            await sandbox.clock.advance(timedelta(minutes=4))
            await run_next(worker, "narration")
        found = await read_metrics(sandbox.database)
    assert get_histogram(found, "run_wait") == {60: 1}
    assert get_histogram(found, "run_duration") == {300: 1}
    assert _sum_seconds(found.counters, "run_wait") == 40
    assert _sum_seconds(found.counters, "run_duration") == 240


async def test_a_run_that_never_started_neither_waited_nor_worked(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        run = (await sandbox.client.start("film")).id
        await sandbox.client.runs.cancel(run)
        found = await read_metrics(sandbox.database)
    assert count_ended(found) == {"cancelled": 1}
    assert get_histogram(found, "run_wait") == get_histogram(found, "run_duration") == {}


async def test_open_runs_are_counted_by_state_and_by_whether_they_have_started(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.start_many("film", [None] * 3)
        await sandbox.client.start("film", run_at=await sandbox.clock.now() + timedelta(hours=1))
        async with sandbox.manual_worker() as worker:
            await worker.claim(1)
            found = await read_metrics(sandbox.database)
    assert found.open_runs == {("film", RunState.RUNNING): 3, ("film", RunState.PENDING): 1}
    assert found.not_started == {"film": 2}


async def test_jobs_are_counted_by_queue_and_state(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.start_many("film", [None] * 3)
        await sandbox.client.start("film", run_at=await sandbox.clock.now() + timedelta(hours=1))
        async with sandbox.manual_worker() as worker:
            claims = await worker.claim(2)
            await run_claims(worker, claims[:1])
            found = await read_metrics(sandbox.database)
    by_queue = {queue.queue: queue for queue in found.queues}
    assert by_queue["default"].jobs == {"ready": 1, "running": 1, "delayed": 1}
    assert by_queue["audio"].jobs == {"ready": 1}
    assert by_queue["audio"].workers == found.workers == 1


async def test_the_heartbeat_timeout_comes_from_the_settings(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox, sandbox.manual_worker():
        run = (await sandbox.client.start("film")).id
        await sandbox.clock.advance(timedelta(seconds=7))
        settings = Settings(database_url=sandbox.database.url, heartbeat_timeout_seconds=60)
        async with connect(sandbox.app, settings) as client:
            assert [wait.reason for wait in await client.runs.list_waits(run)] == [WaitReason.NOT_CLAIMED]
            assert (
                (await client.metrics.get_all()).workers,
                (await client.metrics.get_snapshot()).workers,
            ) == (1, 1)
        assert [wait.reason for wait in await sandbox.client.runs.list_waits(run)] == [WaitReason.NO_WORKER]


async def test_a_worker_without_heartbeats_does_not_count(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox, sandbox.manual_worker():
        await sandbox.clock.advance(timedelta(seconds=7))
        found = await read_metrics(sandbox.database)
    assert found.workers == 0
    assert {queue.workers for queue in found.queues} <= {0}


async def test_a_job_is_ready_from_when_its_run_was_due(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.start("film", run_at=await sandbox.clock.now() + timedelta(hours=1))
        assert await age(sandbox) is None
        await sandbox.clock.advance(timedelta(hours=1))
        await sandbox._release_due_jobs(advance_clock=False)
        await sandbox.clock.advance(timedelta(minutes=3))
        assert await age(sandbox) == timedelta(minutes=3)


async def test_a_job_is_ready_from_when_its_last_dependency_ended(open_sandbox: OpenSandbox) -> None:
    labels = Pipeline("labels")

    @labels.step
    def documents() -> list[str]:
        return ["a", "b"]

    @labels.each(documents)
    def text(document: str) -> str:
        return document

    @labels.step
    def report(text: Items[str]) -> int:
        return len(text)

    async with open_sandbox(labels) as sandbox:
        await sandbox.client.start("labels")
        async with sandbox.manual_worker() as worker:
            await run_next(worker, "documents")
            claims = await worker.claim(2)
            for claim in claims:
                await sandbox.clock.advance(timedelta(hours=1))
                await run_claims(worker, [claim])
            await sandbox.clock.advance(timedelta(minutes=2))
            assert await age(sandbox) == timedelta(minutes=2)


async def test_the_ready_time_of_an_item_does_not_change_when_others_end(open_sandbox: OpenSandbox) -> None:
    labels = Pipeline("labels")

    @labels.step
    def documents() -> list[str]:
        return ["a", "b"]

    @labels.each(documents)
    def text(document: str) -> str:
        return document

    @labels.each(documents, queue="llm")
    def label(text: str) -> str:
        return text

    async with open_sandbox(labels) as sandbox:
        await sandbox.client.start("labels")
        async with sandbox.manual_worker() as worker:
            await run_next(worker, "documents")
            claims = await worker.claim(2)
            await run_claims(worker, [find_claim(claims, "text:a")])
            await sandbox.clock.advance(timedelta(minutes=9))
            await run_claims(worker, [find_claim(claims, "text:b")])
            assert await age(sandbox, "llm") == timedelta(minutes=9)


async def test_a_retried_job_is_ready_from_when_it_was_set_back(open_sandbox: OpenSandbox) -> None:
    flaky = Pipeline("flaky")

    @flaky.step(retry=Retry(1, delays=[0]), timeout=minutes(90))
    def text() -> str:
        raise ValueError("not yet")

    async with open_sandbox(flaky) as sandbox:
        await sandbox.client.start("flaky")
        async with sandbox.manual_worker() as worker:
            claims = await worker.claim(1)
            await sandbox.clock.advance(timedelta(hours=1))
            await run_claims(worker, claims)
            await sandbox._release_due_jobs(advance_clock=False)
            await sandbox.clock.advance(timedelta(minutes=1))
            assert await age(sandbox) == timedelta(minutes=1)


async def test_the_oldest_job_of_all_tenants_counts(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.start("film", tenant="patient")
        await sandbox.clock.advance(timedelta(minutes=5))
        await sandbox.client.start("film", tenant="hasty", priority=10)
        assert await age(sandbox) == timedelta(minutes=5)


async def test_a_job_that_waits_for_a_pool_is_counted_separately(open_sandbox: OpenSandbox) -> None:
    """Full use of a pool is healthy and must not make its queue look neglected."""
    video = Pipeline("video")

    @video.step(pool=Pool("gpu", capacity=3), slots=2)
    def clip() -> str:
        return "clip"

    async with open_sandbox(video) as sandbox:
        await sandbox.client.start_many("video", [None, None])
        async with sandbox.manual_worker() as worker:
            assert len(await worker.claim(10)) == 1
            await sandbox.clock.advance(timedelta(minutes=7))
            found = await read_metrics(sandbox.database)
    (pool,) = found.pools
    assert (pool.name, pool.capacity, pool.used, pool.waiting) == ("gpu", 3, 2, 1)
    assert pool.oldest_for == pool.newest_for == timedelta(minutes=7)
    assert {queue.oldest_for for queue in found.queues} == {None}
    assert found.not_started == {"video": 1}


async def test_open_reviews_are_counted_by_step_until_they_are_decided(open_sandbox: OpenSandbox) -> None:
    story = make_pipeline("story")
    story.review("good_script", of="script", due=minutes(30))
    story.review("good_narration", of="narration")
    async with open_sandbox(story) as sandbox:
        for tenant in ("one", "other"):
            await sandbox.client.start("story", tenant=tenant)
            await sandbox.work(advance_clock=False)
            await sandbox.clock.advance(minutes(20))
        found = (await read_metrics(sandbox.database)).reviews
        for review in await sandbox.client.reviews.list():
            await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana"))
        left = (await read_metrics(sandbox.database)).reviews
    assert found == [
        OpenReviewMetrics("story", "good_narration", open=2, overdue=0, oldest_for=minutes(40)),
        OpenReviewMetrics("story", "good_script", open=2, overdue=1, oldest_for=minutes(40)),
    ]
    assert left == []


async def test_dead_letters_of_a_disabled_endpoint_are_not_counted_until_it_is_enabled(
    open_sandbox: OpenSandbox,
) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.start("film", webhook=Webhook("https://hooks.example.com", events=("run.started",)))
        await send(sandbox, "gone")
        assert await get_delivery_metrics(sandbox) == (0, 0, {"dead": 1})
        (endpoint,) = await sandbox.client.webhooks.list_endpoints()
        await sandbox.client.webhooks.enable_endpoint(endpoint.id)
        assert await get_delivery_metrics(sandbox) == (0, 1, {"dead": 1})


async def test_a_webhook_that_is_given_up_twice_counts_twice_and_is_one_dead_letter(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.start("film", webhook=Webhook("https://hooks.example.com", events=("run.started",)))
        assert await get_delivery_metrics(sandbox) == (1, 0, {})
        await send(sandbox, "dead")
        assert await get_delivery_metrics(sandbox) == (0, 1, {"dead": 1})
        (delivery,) = await sandbox.client.webhooks.list_deliveries()
        await sandbox.client.webhooks.redeliver(delivery.id)
        assert await get_delivery_metrics(sandbox) == (1, 0, {"dead": 1})
        await send(sandbox, "dead")
        assert await get_delivery_metrics(sandbox) == (0, 1, {"dead": 2})
        await sandbox.client.webhooks.redeliver(delivery.id)
        await send(sandbox, "delivered")
        assert await get_delivery_metrics(sandbox) == (0, 0, {"dead": 2, "delivered": 1})


async def test_a_webhook_that_nobody_sends_is_overdue(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.start("film", webhook=Webhook("https://hooks.example.com", events=("run.started",)))
        await sandbox.clock.advance(timedelta(minutes=6))
        assert (await read_metrics(sandbox.database)).deliveries.late_for == timedelta(minutes=6)


async def test_the_histogram_buckets_match_those_that_servers_expose(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        bounds = [
            (await rows(sandbox, "select retoma.histogram_bucket($1::float * interval '1 second')", bound))[0][0]
            for bound in (*BUCKET_BOUNDS, BUCKET_BOUNDS[-1] + 1)
        ]
        above = (await rows(sandbox, "select retoma.histogram_bucket(interval '1.001 seconds')"))[0][0]
    assert bounds == [*BUCKET_BOUNDS, inf]
    assert above == BUCKET_BOUNDS[1]


async def test_metrics_are_read_once_for_all_requests_within_a_second(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("retoma.engine.metrics.time", SimpleNamespace(monotonic=lambda: now))
    async with open_sandbox(make_pipeline()) as sandbox:
        first = await sandbox.client.metrics.get_all()
        await sandbox.client.start("film")
        now = 100.99
        assert await sandbox.client.metrics.get_all() is first
        now = 101.0
        assert await sandbox.client.metrics.get_all() is not first


async def test_people_see_the_same_metrics(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.start("film")
        await sandbox.clock.advance(minutes(6))
        await watchdog.check_due_runs(sandbox.database, timedelta(seconds=6))
        await sandbox.client.start_many("film", [None] * 3)
        async with sandbox.manual_worker() as worker:
            await worker.claim(1)
            pipeline_metrics, shown = await read_metrics(sandbox.database), await read_snapshot(sandbox.database)
    assert shown.queues == pipeline_metrics.queues
    assert shown.workers == pipeline_metrics.workers
    assert (shown.open_runs, shown.stuck) == (sum(pipeline_metrics.open_runs.values()), 1)


async def test_reading_metrics_does_not_read_history(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        for _ in range(20):
            await sandbox.client.start_many("film", [None] * 20)
            await sandbox.work()
        await sandbox.clock.advance(timedelta(hours=1))
        await rows(sandbox, "analyze retoma.runs, retoma.jobs, retoma.events")
        await read_metrics(sandbox.database)
        before = await _reads(sandbox)
        await read_metrics(sandbox.database)
        after = await _reads(sandbox)
    grown = {table: after[table] - before[table] for table in after if after[table] - before[table] > 60}
    assert grown == {}


async def _reads(sandbox: Sandbox) -> dict[str, int]:
    """Rows read from each table that grows with history, as the server counts them."""
    await rows(sandbox, "select pg_stat_force_next_flush()")
    found: list[Any] = await rows(
        sandbox,
        "select relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) as read from pg_stat_user_tables "
        "where schemaname = 'retoma' and relname in ('events', 'jobs', 'runs')",
    )
    return {row["relname"]: row["read"] for row in found}


async def age(sandbox: Sandbox, queue: str = "default") -> timedelta | None:
    by_queue = {found.queue: found for found in (await read_metrics(sandbox.database)).queues}
    return by_queue[queue].oldest_for


async def get_delivery_metrics(sandbox: Sandbox) -> tuple[int, int, dict[str, int]]:
    """Webhooks that are due, that are dead, and how those ended that ended."""
    found = await read_metrics(sandbox.database)
    totals = {tally.outcome: tally.count for tally in found.counters if tally.what == "delivery"}
    return found.deliveries.due, found.deliveries.dead, totals


async def send(sandbox: Sandbox, outcome: str) -> None:
    sent = await rows(
        sandbox,
        "select retoma.record_delivery_attempt(id, attempt, $1, '0', null, 5, 200, null, null) "
        "from retoma.claim_deliveries('{film}', 1, 1, '1 minute')",
        outcome,
    )
    assert len(sent) == 1


def _sum_seconds(tallies: list[MetricCounter], what: str) -> float:
    return sum(tally.seconds for tally in tallies if tally.what == what)
