"""Measure the load of a queue, and advise on its workers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta

from retoma.engine.autoscale import DRAIN_SECONDS, QueueLoad, advise, combine_loads
from retoma.errors import NotFound
from retoma.metrics import JobTypeMetrics
from retoma.records import AutoscaleAdvice
from retoma.store import metrics
from retoma.store.database import Database

DEFAULT_CONCURRENCY = 20  # of `retoma worker`, if no worker has served the queue yet
LONG_WINDOW = timedelta(hours=1)  # for the time that a job takes, if none ended in the usual window


async def get_advice(
    database: Database,
    queues: Sequence[str],
    job_types: Iterable[JobTypeMetrics],
    heartbeat_timeout: timedelta,
    declared: Collection[str] = (),
) -> AutoscaleAdvice:
    """Measure the load of queues, and return how many workers that serve all of them are needed.

    `job_types` has the recent jobs of all steps. Pipelines are stored when they are first used: before that, a queue
    among the `declared` ones of the application needs no worker. Raise NotFound if no step uses any of the queues, no
    worker serves one and none is declared.
    """
    recent = list(job_types)
    measured = [await _measure_load(database, queue, recent, heartbeat_timeout) for queue in queues]
    loads = [load for load in measured if load is not None]
    if not loads and not set(queues) & set(declared):
        names = ", ".join(map(repr, queues))
        raise NotFound(f"no step uses queue {names}, and no worker serves it")
    return advise(", ".join(queues), loads[0] if len(loads) == 1 else combine_loads(loads))


async def _measure_load(
    database: Database, queue: str, job_types: Iterable[JobTypeMetrics], heartbeat_timeout: timedelta
) -> QueueLoad | None:
    """Return None if no step uses the queue and no worker serves it."""
    served = await metrics.find_served_queue(database, queue, heartbeat_timeout)
    if served is None:
        return None
    workers: int = served["workers"]
    found = await metrics.get_queue_load(database, queue, timedelta(seconds=DRAIN_SECONDS))
    recent = _select_queue(job_types, queue)
    ended = recent if any(each.jobs_processed for each in recent) else await _read_last_hour(database, queue)
    wait: timedelta | None = found["oldest_wait"]
    return QueueLoad(
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
