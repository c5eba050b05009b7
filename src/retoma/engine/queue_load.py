"""Measure the load of a queue, and advise on its workers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta

from retoma.engine.autoscale import DRAIN_SECONDS, NO_LOAD, QueueLoad, advise
from retoma.errors import NotFound
from retoma.metrics import JobTypeMetrics
from retoma.records import AutoscaleAdvice
from retoma.store import metrics
from retoma.store.database import Database

DEFAULT_CONCURRENCY = 20  # of `retoma worker`, if no worker has served the queue yet
LONG_WINDOW = timedelta(hours=1)  # for the time that a job takes, if none ended in the usual window


async def get_advice(
    database: Database,
    queue: str,
    job_types: Iterable[JobTypeMetrics],
    heartbeat_timeout: timedelta,
    declared: Collection[str] = (),
) -> AutoscaleAdvice:
    """Measure the load of a queue, and return how many workers it needs. `job_types` has the recent jobs of all steps.

    Pipelines are stored when they are first used: before that, a queue among the `declared` ones of the application
    needs no worker. Raise NotFound for any other queue that no step uses and no worker serves.
    """
    served = await metrics.find_served_queue(database, queue, heartbeat_timeout)
    if served is None and queue in declared:
        return advise(queue, NO_LOAD)
    if served is None:
        raise NotFound(f"no step uses queue {queue!r}, and no worker serves it")
    workers: int = served["workers"]
    found = await metrics.get_queue_load(database, queue, timedelta(seconds=DRAIN_SECONDS))
    recent = _select_queue(job_types, queue)
    ended = recent if any(each.jobs_processed for each in recent) else await _read_last_hour(database, queue)
    wait: timedelta | None = found["oldest_wait"]
    load = QueueLoad(
        queued=found["queued"],
        startable=found["startable"],
        running=found["running"],
        background=found["background"],
        oldest_wait_seconds=0.0 if wait is None else max(wait.total_seconds(), 0.0),
        workers=workers,
        busy_workers=found["busy_workers"],
        concurrency=round(served["concurrency"] / workers) if workers else await _find_concurrency(database, queue),
        seconds_per_job=_get_seconds_per_job(ended),
        busy_slots=sum(each.busy_time / max(each.window, timedelta(seconds=1)) for each in recent),
        is_paused=served["paused_at"] is not None,
        limit=served["concurrency_limit"],
    )
    return advise(queue, load)


async def _read_last_hour(database: Database, queue: str) -> list[JobTypeMetrics]:
    return _select_queue(await metrics.list_job_types(database, LONG_WINDOW), queue)


def _select_queue(job_types: Iterable[JobTypeMetrics], queue: str) -> list[JobTypeMetrics]:
    return [each for each in job_types if each.queue == queue]


def _get_seconds_per_job(job_types: list[JobTypeMetrics]) -> float | None:
    """Return the time for which a job occupies a worker, with the attempts that failed."""
    jobs = sum(each.jobs_processed for each in job_types)
    return sum(each.busy_time.total_seconds() for each in job_types) / jobs if jobs else None


async def _find_concurrency(database: Database, queue: str) -> int:
    """Return how many jobs the last worker of a queue ran at once: the next one probably does the same."""
    return await metrics.find_worker_concurrency(database, queue) or DEFAULT_CONCURRENCY
