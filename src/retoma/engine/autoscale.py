"""How many workers a queue needs. A rule without clock, state or database: the same load gives the same advice.

The rule follows the backlog and the throughput, so it also works while nothing ends. Its memory is the measured load of
the last minutes, and the workers that are running: advice can be taken from any server, as often as wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from retoma.records import AutoscaleAdvice
from retoma.translations import N_

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
    the mean number of jobs that ran at once in the last minutes. While a person has paused the queue, no job of it
    starts, and no more than `limit` of its jobs run at once.
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
    is_paused: bool = False
    limit: int | None = None


class Reason(str):
    """An English sentence that a page can translate: the message of a catalogue, and its values."""

    message: str
    values: dict[str, Any]

    def __new__(cls, message: str, **values: Any) -> Reason:
        reason = super().__new__(cls, message % values)
        reason.message, reason.values = message, values
        return reason


def combine_loads(loads: Sequence[QueueLoad]) -> QueueLoad:
    """Return the load of several queues that the same workers serve.

    A paused queue brings its running jobs, but no waiting ones, and a limit lowers how many of its jobs can start. No
    queues have no load.
    """
    open_loads = [replace(load, queued=0, startable=0) if load.is_paused else load for load in loads]
    timed = [
        (load.queued + load.running, load.seconds_per_job) for load in open_loads if load.seconds_per_job is not None
    ]
    jobs = sum(count for count, _ in timed)
    return QueueLoad(
        queued=sum(load.queued for load in open_loads),
        startable=sum(_count_startable(load) for load in open_loads),
        running=sum(load.running for load in open_loads),
        background=sum(load.background for load in open_loads),
        oldest_wait_seconds=max((load.oldest_wait_seconds for load in open_loads if load.queued), default=0.0),
        workers=max((load.workers for load in open_loads), default=0),
        busy_workers=max((load.busy_workers for load in open_loads), default=0),
        concurrency=max((load.concurrency for load in open_loads), default=1),
        seconds_per_job=sum(count * seconds for count, seconds in timed) / jobs if jobs else None,
        busy_slots=sum(load.busy_slots for load in open_loads),
    )


def _count_startable(load: QueueLoad) -> int:
    return load.startable if load.limit is None else min(load.startable, max(load.limit - load.running, 0))


def advise(queue: str, load: QueueLoad) -> AutoscaleAdvice:
    """Return the number of workers with which the oldest job waits at most MAX_WAIT_SECONDS.

    It is zero if there is nothing to do, at least the number of busy workers otherwise, and no more than the pools of
    the waiting jobs can use.
    """
    desired, reason = _decide(load)
    return AutoscaleAdvice(queue, load.queued, load.running, load.oldest_wait_seconds, desired, reason)


def _decide(load: QueueLoad) -> tuple[int, Reason]:
    if not (load.queued or load.running or load.background):
        return 0, Reason(N_("nothing is waiting or running"))
    if load.is_paused:
        needed = max(load.busy_workers, int(bool(load.running or load.background)))
        return needed, Reason(N_("the queue is paused: its waiting jobs (%(queued)s) do not start"), queued=load.queued)
    needed, reason = _count_needed(load)
    usable, limitation = _count_usable(load)
    is_limited = needed > usable
    if is_limited:
        needed, reason = usable, limitation
    lowest = max(load.busy_workers, 1)
    if needed < lowest:
        needed = lowest
        reason = (
            Reason(N_("busy workers: %(busy)s"), busy=load.busy_workers)
            if load.busy_workers
            else Reason(N_("one worker is enough"))
        )
    kept = _count_kept(load, needed, is_limited)
    if kept <= needed:
        return needed, reason
    return kept, Reason(N_("the load fell a short time ago; %(reason)s"), reason=reason)


def _count_needed(load: QueueLoad) -> tuple[int, Reason]:
    """Return the workers that start all waiting jobs in time, whatever limits them."""
    if not load.queued:
        reason = Reason(N_("running jobs: %(running)s; none is waiting"), running=load.running)
        return _to_workers(load, load.running), reason
    if load.seconds_per_job is None:
        first = max(2 * load.workers, _to_workers(load, FIRST_JOBS))
        message = N_("waiting jobs: %(queued)s; none has ended recently: start some workers, then double them")
        return first, Reason(message, queued=load.queued)
    left = MAX_WAIT_SECONDS - load.oldest_wait_seconds
    drain = min(max(left, MIN_DRAIN_SECONDS), DRAIN_SECONDS)
    needed = _to_workers(load, load.running + load.queued * load.seconds_per_job / drain)
    if left < 0 and needed <= load.workers:
        message, waited = N_("a job has been waiting for %(seconds)s s"), round(load.oldest_wait_seconds)
        return ceil(load.workers * GROWTH), Reason(message, seconds=waited)
    message = N_(
        "waiting jobs: %(queued)s; running jobs: %(running)s; "
        "workers that can start them within %(drain)s s at %(seconds)s s per job: %(workers)s"
    )
    seconds = float(f"{load.seconds_per_job:.3g}")
    return needed, Reason(
        message,
        queued=load.queued,
        running=load.running,
        workers=needed,
        drain=round(drain),
        seconds=int(seconds) if seconds.is_integer() else seconds,
    )


def _count_usable(load: QueueLoad) -> tuple[int, Reason]:
    """Return how many workers could run jobs at once, and what limits them."""
    jobs = load.running + load.startable
    if load.limit is not None and load.limit < jobs:
        reason = Reason(N_("the queue may run at most %(limit)s at once"), limit=load.limit)
        return _to_workers(load, load.limit), reason
    if load.startable < load.queued:
        message = N_("waiting jobs that need slots of a pool that has none left: %(waiting)s of %(queued)s")
        reason = Reason(message, waiting=load.queued - load.startable, queued=load.queued)
        return _to_workers(load, jobs), reason
    return _to_workers(load, jobs), Reason(N_("every waiting job can start at once"))


def _count_kept(load: QueueLoad, needed: int, is_limited: bool) -> int:
    """Return how many of the present workers to keep although fewer are needed at this moment. While a limit holds jobs
    back, it keeps only as many as were in use: the others would wait for the limit."""
    if is_limited:
        return min(load.workers, _to_workers(load, load.busy_slots))
    if needed > KEPT_SHARE * load.workers:
        return load.workers
    return min(load.workers, _to_workers(load, HEADROOM * load.busy_slots))


def _to_workers(load: QueueLoad, slots: float) -> int:
    return ceil(slots / load.concurrency)
