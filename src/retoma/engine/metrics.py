"""The metrics behind /metrics and the pages. Concurrent readers share one query."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Generic, TypeVar

from retoma.metrics import JobTypeMetrics, Metrics, MetricsSnapshot
from retoma.records import Worker
from retoma.settings import HEARTBEAT_TIMEOUT
from retoma.store import budgets, clock, health, metrics, notifications, review_metrics, schedules, versions, workers
from retoma.store.database import Database

MAX_AGE_SECONDS = 1.0
MAX_SNAPSHOT_RUNS = 4_000
JOB_TYPE_WINDOW = timedelta(minutes=5)
REVIEW_WINDOW = timedelta(hours=24)
Value = TypeVar("Value")


class CachedReader(Generic[Value]):
    """Returns a value that `load` returned at most a second ago. Of concurrent readers only one loads it."""

    def __init__(
        self, database: Database, load: Callable[[Database, timedelta], Awaitable[Value]], heartbeat_timeout: timedelta
    ) -> None:
        self._database = database
        self._load = load
        self._heartbeat_timeout = heartbeat_timeout
        self._loading = asyncio.Lock()
        self._last: tuple[float, Value] | None = None

    def expire(self) -> None:
        """Load the value again for the next reader."""
        self._last = None

    async def read(self) -> Value:
        async with self._loading:
            if self._last is None or time.monotonic() - self._last[0] >= MAX_AGE_SECONDS:
                self._last = (time.monotonic(), await self._load(self._database, self._heartbeat_timeout))
            return self._last[1]


async def read_metrics(database: Database, heartbeat_timeout: timedelta = HEARTBEAT_TIMEOUT) -> Metrics:
    """Return all metrics. A worker counts if it sent a heartbeat within `heartbeat_timeout`."""
    of_queues, of_pools = await metrics.get_ready_ages(database)
    live = await _list_live_workers(database, heartbeat_timeout)
    return Metrics(
        queues=await metrics.list_queues(database, of_queues, heartbeat_timeout),
        pools=await metrics.list_pools(database, of_pools),
        open_runs=await metrics.count_open_runs(database),
        not_started=await metrics.count_runs_not_started(database),
        orphans=await metrics.count_orphans(database),
        job_types=await read_job_types(database, heartbeat_timeout),
        reviews=await metrics.list_open_reviews(database),
        review_steps=await review_metrics.list_steps(database, REVIEW_WINDOW),
        reviewers=await review_metrics.list_reviewers(
            database, await clock.now(database) - REVIEW_WINDOW, REVIEW_WINDOW
        ),
        deliveries=await metrics.get_delivery_metrics(database),
        notifications=await notifications.get_metrics(database),
        schedules=await schedules.get_metrics(database),
        upkeep=await metrics.get_upkeep(database),
        budgets=await budgets.list_metrics(database),
        counters=await metrics.list_counters(database),
        workers=len(live),
        pipelines={name: sum(one.serves(name) for one in live) for name in await versions.list_pipelines(database)},
        oldest_transaction=await _get_oldest_transaction(database),
    )


async def read_snapshot(
    database: Database, heartbeat_timeout: timedelta = HEARTBEAT_TIMEOUT, tenants: Sequence[int] | None = None
) -> MetricsSnapshot:
    """Return the part of the metrics that the pages show, which takes a fraction of the time.

    For some tenants, it has no pools: they are shared by all.
    """
    of_queues, of_pools = await metrics.get_ready_ages(database) if tenants is None else ({}, {})
    open_runs, stuck = await metrics.count_open_and_stuck(database, tenants)
    return MetricsSnapshot(
        queues=await metrics.list_queues(database, of_queues, heartbeat_timeout, MAX_SNAPSHOT_RUNS)
        if tenants is None
        else await metrics.list_queues_of_tenants(database, tenants, heartbeat_timeout, MAX_SNAPSHOT_RUNS),
        pools=await metrics.list_pools(database, of_pools) if tenants is None else [],
        open_runs=open_runs,
        oldest_runs=await metrics.count_open_runs(database, MAX_SNAPSHOT_RUNS, tenants),
        stuck=stuck,
        deliveries=await metrics.get_delivery_metrics(database, tenants),
        workers=len(await _list_live_workers(database, heartbeat_timeout)),
    )


async def read_job_types(database: Database, _: timedelta) -> list[JobTypeMetrics]:
    """Return the jobs of the last five minutes, by step."""
    return await metrics.list_job_types(database, JOB_TYPE_WINDOW)


async def _get_oldest_transaction(database: Database) -> timedelta:
    found = await health.list_old_transactions(database, timedelta(0))
    return max((row["open_for"] for row in found), default=timedelta(0))


async def _list_live_workers(database: Database, heartbeat_timeout: timedelta) -> list[Worker]:
    return [worker for worker in await workers.list_alive(database) if worker.is_alive(heartbeat_timeout)]
