"""How many workers a queue needs. A rule without clock, state or database: the same load gives the same advice.

The rule follows the backlog and the throughput, so it also works while nothing ends. Its memory is the measured load of
the last minutes, and the workers that are running: advice can be taken from any server, as often as wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from retoma.records import AutoscaleAdvice

MAX_WAIT_SECONDS = 60.0  # the oldest job should wait no longer
DRAIN_SECONDS = 30.0  # a backlog should start within this time: the rest is left for the start of workers
MIN_DRAIN_SECONDS = 10.0
FIRST_JOBS = 20  # to start at once while the time that a job takes is unknown
GROWTH = 1.25  # of the workers, while a job has waited for too long
HEADROOM = 1.5  # over the mean load of the last minutes
KEPT_SHARE = 0.5  # workers are kept while more than this share of them is needed


@dataclass(frozen=True)
class QueueLoad:
    """What waits and runs in a queue.

    `startable` counts the queued jobs that could start at once if there were workers: those without a pool, and as many
    of the others as their pools have room for. `background` counts other work that needs a worker: external work to
    poll, effects to look for and webhooks to send. `concurrency` is the number of jobs that one worker runs at once.
    `seconds_per_job` is the time for which a job occupies a worker, None if no job has ended recently, and `busy_slots`
    the mean number of jobs that ran at once in the last minutes.
    """

    queued: int
    startable: int
    running: int
    background: int
    oldest_wait_seconds: float
    workers: int
    busy_workers: int
    concurrency: int
    seconds_per_job: float | None
    busy_slots: float


def advise(queue: str, load: QueueLoad) -> AutoscaleAdvice:
    """Return the number of workers with which the oldest job waits at most MAX_WAIT_SECONDS.

    It is zero if there is nothing to do, at least the number of busy workers otherwise, and no more than the pools of
    the waiting jobs can use.
    """
    desired, reason = _decide(load)
    return AutoscaleAdvice(queue, load.queued, load.running, load.oldest_wait_seconds, desired, reason)


def _decide(load: QueueLoad) -> tuple[int, str]:
    if not (load.queued or load.running or load.background):
        return 0, "nothing is waiting or running"
    needed, reason = _count_needed(load)
    usable = _to_workers(load, load.running + load.startable)
    if needed > usable:
        needed = usable
        reason = (
            f"{load.queued - load.startable} of {load.queued} waiting jobs need slots of a pool that has none left"
            if load.startable < load.queued
            else "every waiting job can start at once"
        )
    lowest = max(load.busy_workers, 1)
    if needed < lowest:
        needed = lowest
        reason = f"{load.busy_workers} workers are busy" if load.busy_workers else "one worker is enough"
    kept = _count_kept(load, needed)
    return (needed, reason) if kept <= needed else (kept, f"the load fell a short time ago; {reason}")


def _count_needed(load: QueueLoad) -> tuple[int, str]:
    """Return the workers that start all waiting jobs in time, whatever limits them."""
    if not load.queued:
        return _to_workers(load, load.running), f"{load.running} jobs are running and none is waiting"
    if load.seconds_per_job is None:
        first = max(2 * load.workers, _to_workers(load, FIRST_JOBS))
        return first, f"{load.queued} jobs are waiting and none has ended recently: start some, then double the workers"
    left = MAX_WAIT_SECONDS - load.oldest_wait_seconds
    drain = min(max(left, MIN_DRAIN_SECONDS), DRAIN_SECONDS)
    needed = _to_workers(load, load.running + load.queued * load.seconds_per_job / drain)
    reason = (
        f"{load.queued} jobs are waiting and {load.running} are running: {needed} workers can start them within "
        f"{drain:.0f} s at {load.seconds_per_job:.3g} s per job"
    )
    if left < 0 and needed <= load.workers:
        return ceil(load.workers * GROWTH), f"a job has been waiting for {load.oldest_wait_seconds:.0f} s"
    return needed, reason


def _count_kept(load: QueueLoad, needed: int) -> int:
    """Return how many of the present workers to keep although fewer are needed at this moment."""
    if needed > KEPT_SHARE * load.workers:
        return load.workers
    return min(load.workers, _to_workers(load, HEADROOM * load.busy_slots))


def _to_workers(load: QueueLoad, slots: float) -> int:
    return ceil(slots / load.concurrency)
