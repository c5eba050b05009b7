"""Metrics across all runs, jobs and queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from retoma.metrics import (
    DeliveryMetrics,
    JobTypeMetrics,
    MetricCounter,
    OpenReviewMetrics,
    PoolMetrics,
    QueueMetrics,
    QueueSample,
    QueueTimes,
    UpkeepMetrics,
)
from retoma.records import PipelineMetrics
from retoma.states import RunState
from retoma.store import clock, reviews
from retoma.store.database import Database, Row
from retoma.store.statements import statements

_SQL = statements("metrics")
MAX_RUNS = 20_000  # there is no index of running jobs, so open runs are read one by one
MAX_SAMPLED_RUNS = 4_000
MAX_SAMPLED_QUEUES = 200
MAX_TENANTS = 20  # per queue, of which the first waiting job is read
MAX_WORKERS = 1_000  # the newest, among which one of a queue is sought
MAX_READY_JOBS = 100  # per queue and tenant, of which the first of each step is taken
MAX_EVENTS = 5_000  # the newest, of which the ends of jobs are read
MIN_WINDOW_MINUTES = 1 / 60  # a rate is of at least a second
MAX_ENDS = 10_000  # counted at a time; the next update counts the rest


ReadyAges = dict[str, timedelta]


async def get_ready_ages(database: Database) -> tuple[ReadyAges, ReadyAges]:
    """Return how long the next job in line has been ready, by queue, and for jobs that wait for a pool, by pool."""
    of_queues: ReadyAges = {}
    of_pools: ReadyAges = {}
    for row in await database.fetch(_SQL["list_ready_ages"], max_tenants=MAX_TENANTS):
        ages, name = (of_queues, row["queue"]) if row["pool"] is None else (of_pools, row["pool"])
        ages[name] = max(row["age"], ages.get(name, row["age"]))
    return of_queues, of_pools


async def list_queues(
    database: Database, ages: ReadyAges, heartbeat_timeout: timedelta, max_runs: int = MAX_RUNS
) -> list[QueueMetrics]:
    """Return every queue. Workers without a heartbeat for `heartbeat_timeout` do not count."""
    jobs = await database.fetch(_SQL["count_jobs_by_queue"], max_runs=max_runs)
    return await _list_queues_with(database, jobs, ages, heartbeat_timeout)


async def list_queues_of_tenants(
    database: Database, tenants: Sequence[int], heartbeat_timeout: timedelta, max_runs: int = MAX_RUNS
) -> list[QueueMetrics]:
    """Return every queue with the jobs of these tenants only. Its workers serve all tenants."""
    jobs = await database.fetch(_SQL["count_tenant_jobs_by_queue"], tenants=tenants, max_runs=max_runs)
    ages: ReadyAges = {}
    for row in jobs:
        if row["age"] is not None:
            ages[row["queue"]] = max(row["age"], ages.get(row["queue"], row["age"]))
    return await _list_queues_with(database, jobs, ages, heartbeat_timeout)


async def _list_queues_with(
    database: Database, counts: list[Row], ages: ReadyAges, heartbeat_timeout: timedelta
) -> list[QueueMetrics]:
    jobs: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in counts:
        jobs[row["queue"]][row["state"]] = row["jobs"]
    return [
        QueueMetrics(**row, jobs=jobs[row["queue"]], oldest_for=ages.get(row["queue"]))
        for row in await database.fetch(_SQL["list_queues"], heartbeat_timeout=heartbeat_timeout)
    ]


async def find_served_queue(database: Database, queue: str, heartbeat_timeout: timedelta) -> Row | None:
    """Return the number of running workers of a queue, their total concurrency, its limit and its pause."""
    found = await database.fetch(_SQL["list_queues"], heartbeat_timeout=heartbeat_timeout)
    return next((row for row in found if row["queue"] == queue), None)


async def count_open_runs(
    database: Database, max_runs: int | None = None, tenants: Sequence[int] | None = None
) -> dict[tuple[str, RunState], int]:
    """Return the number of open runs by pipeline and state, among the oldest `max_runs`."""
    rows = await database.fetch(_SQL["count_open_runs_by_state"], max_runs=max_runs, tenants=tenants)
    return {(row["pipeline"], RunState(row["state"])): row["runs"] for row in rows}


async def count_open_and_stuck(database: Database, tenants: Sequence[int] | None = None) -> tuple[int, int]:
    """Return the number of open runs, and how many of them are stuck."""
    row = await database.fetch_one(_SQL["count_open_runs"], tenants=tenants)
    return row["open"], row["stuck"]


async def count_runs_not_started(database: Database) -> dict[str, int]:
    """Return the number of runs without an attempt by pipeline, except those that are not due yet."""
    rows = await database.fetch(_SQL["count_runs_not_started"], max_runs=MAX_RUNS)
    return {row["pipeline"]: row["runs"] for row in rows}


async def count_orphans(database: Database) -> dict[str, int]:
    """Return the number of orphaned effects that nobody has resolved, by pipeline."""
    return {row["pipeline"]: row["orphans"] for row in await database.fetch(_SQL["count_orphans"])}


async def list_open_reviews(database: Database) -> list[OpenReviewMetrics]:
    """Return open reviews by pipeline and step, without empty rows."""
    found = await reviews.count_open(database)
    now = await clock.now(database)
    return [
        OpenReviewMetrics(each.pipeline, each.step, each.open, each.overdue, now - each.oldest_at) for each in found
    ]


async def sample_queues(database: Database, heartbeat_timeout: timedelta) -> None:
    """Record the sizes of all queues, unless another process has done so in this minute."""
    await database.fetch(
        _SQL["sample_queues"],
        max_runs=MAX_SAMPLED_RUNS,
        max_queues=MAX_SAMPLED_QUEUES,
        heartbeat_timeout=heartbeat_timeout,
    )


async def list_queue_samples(database: Database, since: datetime, queue: str | None) -> list[QueueSample]:
    return await database.fetch_records(QueueSample, _SQL["list_queue_samples"], since=since, queue=queue)


async def get_queue_load(database: Database, queue: str, ahead: timedelta) -> Row:
    """Return what waits and runs in a queue. Pools have room for the jobs that may start within `ahead`."""
    return await database.fetch_one(
        _SQL["get_queue_load"], queue=queue, max_runs=MAX_RUNS, max_tenants=MAX_TENANTS, ahead=ahead
    )


async def find_worker_concurrency(database: Database, queue: str) -> int | None:
    """Return the concurrency of the worker that last served a queue, running or not."""
    found: int | None = await database.find_value(_SQL["find_worker_concurrency"], queue=queue, limit=MAX_WORKERS)
    return found


async def list_job_types(database: Database, window: timedelta) -> list[JobTypeMetrics]:
    """Return every step with its jobs of the last `window`, which is shorter if more than MAX_EVENTS were written."""
    found = await database.fetch(
        _SQL["list_job_types"],
        window=window,
        max_events=MAX_EVENTS,
        max_tenants=MAX_TENANTS,
        max_jobs=MAX_READY_JOBS,
    )
    return [_make_job_type(row) for row in found]


async def list_queue_times(database: Database, window: timedelta) -> dict[str, QueueTimes]:
    """Return the queues whose jobs ended in the last `window`, which is shorter if many events were written."""
    found = await database.fetch(_SQL["list_queue_times"], window=window, max_events=MAX_EVENTS)
    return {row["queue"]: _make_queue_times(row) for row in found}


def _make_queue_times(row: Row) -> QueueTimes:
    _, p50_queue_time, p95_queue_time = _to_durations(row["queue_times"])
    _, p50_processing_time, p95_processing_time = _to_durations(row["processing_times"])
    return QueueTimes(
        jobs_processed_per_minute=_get_rate(row),
        p50_queue_time=p50_queue_time,
        p95_queue_time=p95_queue_time,
        p50_processing_time=p50_processing_time,
        p95_processing_time=p95_processing_time,
    )


def _get_rate(row: Row) -> float:
    """Return the jobs that ended per minute."""
    return float(row["ended"] / max(row["window"] / timedelta(minutes=1), MIN_WINDOW_MINUTES))


def _make_job_type(row: Row) -> JobTypeMetrics:
    avg_queue_time, p50_queue_time, p95_queue_time = _to_durations(row["queue_times"])
    avg_processing_time, p50_processing_time, p95_processing_time = _to_durations(row["processing_times"])
    return JobTypeMetrics(
        pipeline=row["pipeline"],
        step=row["step"],
        queue=row["queue"],
        window=row["window"],
        jobs_processed=row["ended"],
        jobs_processed_per_minute=_get_rate(row),
        avg_queue_time=avg_queue_time,
        p50_queue_time=p50_queue_time,
        p95_queue_time=p95_queue_time,
        oldest_queue_time=row["age"],
        avg_processing_time=avg_processing_time,
        p50_processing_time=p50_processing_time,
        p95_processing_time=p95_processing_time,
        busy_time=timedelta(seconds=row["busy_seconds"]),
    )


def _to_durations(seconds: Sequence[float] | None) -> Sequence[timedelta | None]:
    return [None] * 3 if seconds is None else [timedelta(seconds=each) for each in seconds]


async def update_counters(database: Database) -> None:
    """Count what has ended since the last update."""
    await database.fetch(_SQL["update_counters"], limit=MAX_ENDS)


async def list_counters(database: Database) -> list[MetricCounter]:
    """Update the counters and return them."""
    await update_counters(database)
    return await database.fetch_records(MetricCounter, _SQL["list_counters"])


async def list_pools(database: Database, ages: ReadyAges) -> list[PoolMetrics]:
    rows = await database.fetch(_SQL["list_pool_metrics"])
    return [PoolMetrics(**row, oldest_for=ages.get(row["name"])) for row in rows]


async def get_delivery_metrics(database: Database, tenants: Sequence[int] | None = None) -> DeliveryMetrics:
    return DeliveryMetrics(**await database.fetch_one(_SQL["get_delivery_metrics"], tenants=tenants))


async def get_upkeep(database: Database) -> UpkeepMetrics:
    return UpkeepMetrics(**await database.fetch_one(_SQL["get_upkeep"]))


async def get_pipeline_metrics(
    database: Database,
    pipeline: str,
    since: datetime,
    excluded_steps: Sequence[str],
    tenants: Sequence[int] | None = None,
) -> PipelineMetrics:
    values = {"pipeline": pipeline, "since": since, "excluded_steps": list(excluded_steps), "tenants": tenants}
    row = await database.fetch_one(_SQL["get_pipeline_metrics"], **values)
    return PipelineMetrics(**dict(row))
