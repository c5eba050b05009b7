"""`/metrics`: correct numbers, the same from every server, for authorised callers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric

from retoma import App, Webhook
from retoma.engine import background_loops
from retoma.engine.retention import remove_due
from retoma.metrics import OpenReviewMetrics
from retoma.records import Scope
from retoma.server.request_rate import RequestRate
from retoma.settings import RetentionTimes
from retoma.states import RUN_FINAL_STATES
from retoma.store.backups import record_backup
from retoma.store.database import Database
from retoma.store.retention import remove_expired_runs
from tests.conftest import empty_database
from tests.deploy.scrape import fetch_metrics, names, open_busy_server, samples
from tests.server.api import ELSEWHERE, Api, an_api, film
from tests.server.conftest import OpenApi
from tests.wait_timeout import WAIT_TIMEOUT

AGE_OF_BACKUP = "retoma_last_backup_age_seconds"


async def test_metrics_match_the_database(database: Database) -> None:
    async with open_busy_server(database) as api:
        found = samples(await fetch_metrics(api))
    assert found["retoma_runs", frozenset({("pipeline", "img2vid"), ("state", "running")})] == 2
    assert found["retoma_runs_ended_total", frozenset({("pipeline", "img2vid"), ("state", "completed")})] == 1
    assert found["retoma_runs_not_started", frozenset({("pipeline", "img2vid")})] == 1
    assert found["retoma_orphaned_effects", frozenset({("pipeline", "img2vid")})] == 0
    assert found["retoma_jobs", frozenset({("queue", "default"), ("state", "running")})] == 1
    assert found["retoma_jobs", frozenset({("queue", "default"), ("state", "ready")})] == 1
    assert found["retoma_workers", frozenset()] == 1
    assert found["retoma_queue_workers", frozenset({("queue", "default")})] == 1
    gpu = frozenset({("pool", "gpu")})
    assert [found[f"retoma_pool_{what}", gpu] for what in ("capacity", "used", "waiting")] == [3, 2, 1]
    assert found["retoma_dead_deliveries", frozenset()] == 1
    assert found["retoma_disabled_endpoints", frozenset()] == 0
    assert found["retoma_deliveries_ended_total", frozenset({("pipeline", "img2vid"), ("state", "delivered")})] == 1


async def test_the_age_of_the_last_backup_is_exposed_if_one_was_taken(open_api: OpenApi) -> None:
    async with open_api(scopes=[Scope.METRICS_READ]) as api:
        assert AGE_OF_BACKUP not in await read_totals(api)
        now = await api.client.now()
        for days in (1, 2):
            await record_backup(api.sandbox.database, uuid4(), now - timedelta(days=days), 1, 1)
        assert (await read_totals(api))[AGE_OF_BACKUP] == 86_400


async def test_the_age_of_a_retention_pass_grows_until_the_next_one_has_ended(open_api: OpenApi) -> None:
    async with open_api(scopes=[Scope.METRICS_READ]) as api:
        database = api.sandbox.database
        started = [await api.client.start("film", {"topic": "tea"}) for _ in range(2)]
        for run in started:
            await api.client.runs.cancel(run.id)
        await api.sandbox.clock.advance(timedelta(days=100))
        await remove_due(database, RetentionTimes(ended=timedelta(days=1000)), at_once=True)
        await api.sandbox.clock.advance(timedelta(hours=1))
        for _ in started:  # each call removes one run, and the pass has not ended
            await remove_expired_runs(database, RetentionTimes(), limit=1, jobs=100, pause=timedelta(0))
            assert (await read_totals(api))["retoma_retention_pass_age_seconds"] == 3_600
        await remove_due(database, RetentionTimes())
        assert (await read_totals(api))["retoma_retention_pass_age_seconds"] == 0


async def test_what_a_restore_holds_back_is_exposed(open_api: OpenApi) -> None:
    async with open_api(scopes=[Scope.METRICS_READ]) as api:
        hook = Webhook("https://hooks.example.com/one", events=("run.started", "run.ended"))
        await api.client.start("film", {"topic": "tea"}, webhook=hook)
        await api.sandbox.work(advance_clock=False)
        assert (await read_totals(api))["retoma_held_deliveries"] == 0
        async with api.sandbox.database.connection() as connection:
            await connection.execute("select retoma.begin_restored_state(gen_random_uuid(), retoma.now(), 'hold')")
        # The second webhook waits behind the first one.
        assert (await read_totals(api))["retoma_held_deliveries"] == 1


async def read_totals(api: Api) -> dict[str, float]:
    """The metrics without labels, read again from the database."""
    api.client._core.metrics_reader.expire()
    return {name: value for (name, labels), value in samples(await fetch_metrics(api)).items() if not labels}


async def test_totals_begin_with_zero_so_that_a_first_failure_counts(open_api: OpenApi) -> None:
    async with open_api(scopes=[Scope.METRICS_READ]) as api, api.sandbox.manual_worker():
        found = samples(await fetch_metrics(api))
    ended = {
        dict(labels)["state"]: value
        for (name, labels), value in found.items()
        if name == "retoma_runs_ended_total" and ("pipeline", "film") in labels
    }
    assert ended == dict.fromkeys(RUN_FINAL_STATES, 0)
    dead = frozenset({("pipeline", "film"), ("state", "dead")})
    assert found["retoma_deliveries_ended_total", dead] == 0


async def test_workers_are_counted_for_the_pipelines_of_their_application(database: Database) -> None:
    async with open_busy_server(database) as api:
        found = samples(await fetch_metrics(api))
    by_pipeline = {
        name: found["retoma_pipeline_workers", frozenset({("pipeline", name)})] for name in ("img2vid", "story")
    }
    assert by_pipeline == {"img2vid": 1, "story": 0}


async def test_the_orchestrator_has_its_six_metrics(database: Database) -> None:
    async with open_busy_server(database) as api:
        text = await fetch_metrics(api)
    found = samples(text)
    assert found["orchestrator_jobs_queued", frozenset()] == 1
    assert found["orchestrator_jobs_inprogress", frozenset()] == 1
    assert found["orchestrator_workers_available", frozenset()] == 1
    assert found["orchestrator_webhook_success_total", frozenset()] == 1
    assert found["orchestrator_webhook_failure_total", frozenset()] == 1
    types = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE orchestrator_"))
    assert types == {
        "orchestrator_jobs_queued": "gauge",
        "orchestrator_jobs_inprogress": "gauge",
        "orchestrator_workers_available": "gauge",
        "orchestrator_job_duration_seconds": "histogram",
        "orchestrator_webhook_success_total": "counter",
        "orchestrator_webhook_failure_total": "counter",
    }


async def test_the_histogram_of_durations_has_the_known_buckets(database: Database) -> None:
    async with open_busy_server(database) as api:
        found = samples(await fetch_metrics(api))
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in found.items()
        if name == "orchestrator_job_duration_seconds_bucket"
    }
    assert buckets == {
        "60.0": 0,
        "120.0": 0,
        "300.0": 1,
        "600.0": 1,
        "1200.0": 1,
        "1800.0": 1,
        "3600.0": 1,
        "+Inf": 1,
    }
    assert found["orchestrator_job_duration_seconds_sum", frozenset()] == 240
    assert found["orchestrator_job_duration_seconds_count", frozenset()] == 1


async def test_job_wait_times_and_the_age_of_the_oldest_are_exposed(database: Database) -> None:
    async with open_busy_server(database) as api:
        found = samples(await fetch_metrics(api))
    assert found["retoma_run_wait_seconds_sum", frozenset({("pipeline", "img2vid")})] == 30
    assert ("retoma_pool_oldest_waiting_seconds", frozenset({("pool", "gpu")})) in found
    assert ("retoma_oldest_ready_seconds", frozenset({("queue", "default")})) in found


async def test_job_types_are_exposed_by_pipeline_and_step(database: Database) -> None:
    async with open_busy_server(database) as api:
        found = samples(await fetch_metrics(api))
    clip, draft = (
        frozenset({("pipeline", pipeline), ("step", step)})
        for pipeline, step in (("img2vid", "clip"), ("story", "draft"))
    )
    assert found["jobs_processed_per_minute", clip] == 1 / 5
    for prefix in ("avg", "p50", "p95"):
        assert found[f"{prefix}_queue_time_per_job_type", clip] == 30
        assert found[f"{prefix}_processing_time_per_job_type", clip] == 4 * 60
    assert ("oldest_queue_time_per_job_type", clip) in found
    # It ended more than five minutes ago: a time of 0 s would look like a quick one.
    assert found["jobs_processed_per_minute", draft] == 0
    assert ("avg_queue_time_per_job_type", draft) not in found


async def test_requests_are_counted_except_health_checks_and_scrapes(open_api: OpenApi) -> None:
    async with open_api(scopes=[Scope.METRICS_READ, Scope.RUNS_READ]) as api:
        for path in ("/api/v1/runs", "/api/v1/runs", "/nowhere", "/healthz", "/readyz", "/metrics"):
            await api.get(path)
        found = samples(await fetch_metrics(api))
    assert found["retoma_http_requests_total", frozenset()] == 3
    assert found["retoma_http_requests_per_second", frozenset()] > 0


def test_the_request_rate_is_that_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("retoma.server.request_rate.time", SimpleNamespace(monotonic=lambda: now))
    requests = RequestRate()
    for _ in range(30):
        requests.count()
    now += 10
    assert requests.get_rate() == 3
    for _ in range(30):
        requests.count()
    now += 40
    assert requests.get_rate() == 60 / 50
    now += 15
    assert requests.get_rate() == 30 / 60
    now += 60
    assert requests.get_rate() == 0
    assert requests.total == 60


async def test_waiting_reviews_are_exposed_by_pipeline_and_step(database: Database) -> None:
    async with open_busy_server(database) as api:
        found = samples(await fetch_metrics(api))
    of_step = frozenset({("pipeline", "story"), ("step", "good_draft")})
    names = ("retoma_open_reviews", "retoma_overdue_reviews", "retoma_oldest_open_review_seconds")
    assert [found[name, of_step] for name in names] == [2, 1, 84 * 60 + 30]


async def test_no_name_breaks_the_text_of_metrics(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = OpenReviewMetrics('a "story"', "good\\text\n1", open=3, overdue=0, oldest_for=timedelta(hours=1))
    async with open_busy_server(database) as api:
        metrics = replace(await api.client.metrics.get_all(), reviews=[odd])
        monkeypatch.setattr(type(api.client.metrics), "get_all", AsyncMock(return_value=metrics))
        found = samples(await fetch_metrics(api))
    assert found["retoma_open_reviews", frozenset({("pipeline", odd.pipeline), ("step", odd.step)})] == 3


@pytest.mark.parametrize("scope", [Scope.RUNS_READ, Scope.POOLS_READ, Scope.DELIVERIES_READ])
async def test_metrics_need_their_own_scope(open_api: OpenApi, scope: Scope) -> None:
    async with open_api(scopes=[scope]) as api:
        assert (await api.get("/metrics")).status_code == 403
        assert (await api.get("/metrics", key=None)).status_code == 401


async def test_in_development_only_callers_on_this_machine_see_metrics_without_a_key(open_api: OpenApi) -> None:
    async with open_api(scopes=None, development=True, address="127.0.0.1", host="127.0.0.1") as api:
        assert (await api.get("/metrics")).status_code == 200
    async with open_api(scopes=None, development=True, address=ELSEWHERE) as api:
        assert (await api.get("/metrics")).status_code == 401


async def test_an_application_whose_metrics_fail_hides_no_engine_metric(database: Database) -> None:
    async def broken(_: Any) -> Iterable[Metric]:
        raise RuntimeError("no")

    found = samples(await _scrape_of(database, broken))
    assert found["retoma_application_metrics_up", frozenset()] == 0
    assert ("retoma_workers", frozenset()) in found


async def test_an_application_adds_metrics_of_its_own(database: Database) -> None:
    async def own(_: Any) -> Iterable[Metric]:
        return [GaugeMetricFamily("films_in_the_can", "Films.", 3)]

    found = samples(await _scrape_of(database, own))
    assert found["films_in_the_can", frozenset()] == 3
    assert found["retoma_application_metrics_up", frozenset()] == 1


async def test_metrics_name_no_tenant_and_no_run(database: Database) -> None:
    async with open_busy_server(database) as api:
        run = (await api.client.start("img2vid", tenant="secret-customer")).id
        text = await fetch_metrics(api)
    assert "secret-customer" not in text
    assert str(run) not in text


async def test_openmetrics_is_returned_on_request(database: Database) -> None:
    async with open_busy_server(database) as api:
        answer = await api.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_a_server_exposes_metrics_of_its_own_process(database: Database) -> None:
    async with open_busy_server(database) as api:
        assert {"process_cpu_seconds_total", "process_resident_memory_bytes"} <= names(await fetch_metrics(api))


async def _scrape_of(database: Database, measures: Any) -> str:
    await empty_database(database)
    application = App("films", pipelines=[film], metrics=measures)
    async with an_api(database, application=application) as api:
        return await fetch_metrics(api)


async def test_a_loop_that_failed_is_counted_by_metrics_and_readiness(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_loops, "SECONDS_BEFORE_RESTART", 0.0)
    failures = 0
    failed = asyncio.Event()

    async def fail_twice() -> None:
        nonlocal failures
        if failures == 2:
            failed.set()
            await asyncio.Event().wait()
        failures += 1
        raise ValueError("a bug of ours")

    async with an_api(database) as api:
        task = asyncio.create_task(background_loops.run_with_restarts("stumbling", fail_twice))
        async with asyncio.timeout(WAIT_TIMEOUT):
            await failed.wait()
        task.cancel()
        found = samples(await fetch_metrics(api))
        ready = (await api.get("/readyz", key=None)).json()
    assert found["retoma_loop_restarts_total", frozenset({("loop", "stumbling")})] == 2
    assert (ready["status"], ready["loop_restarts"]["stumbling"]) == ("ready", 2)
