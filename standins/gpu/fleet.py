"""The jobs and workers of the stand-in at a given time. Touches no clock and no socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Literal

Status = Literal["IN_QUEUE", "IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"]
LIVE: tuple[Status, ...] = ("IN_QUEUE", "IN_PROGRESS")


@dataclass
class Job:
    """Times are seconds of the stand-in's clock."""

    id: str
    endpoint: str
    input: dict[str, Any]
    submitted_at: float
    webhook: str | None = None
    longest: float = 600.0
    ttl: float = 86_400.0
    status: Status = "IN_QUEUE"
    started_at: float | None = None
    ended_at: float | None = None
    cancel_at: float = inf
    output: Any = None
    error: str | None = None

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    @property
    def key(self) -> str | None:
        return self.input.get("key")


@dataclass
class Fleet:
    """`seconds` returns how long a job takes, `outcome` how it ends; a job of infinite length ends only through
    `end`."""

    workers: int
    seconds: Callable[[Job], float]
    outcome: Callable[[Job], tuple[Status, Any, str | None]]
    queue_seconds: float = 0.0
    cancel_seconds: float = 0.0
    retention: float = 1800.0
    jobs: dict[str, Job] = field(default_factory=dict)
    ended: list[Job] = field(default_factory=list)
    """Ended jobs that are not yet reported; the caller removes them."""
    _at: float = 0.0

    def settle(self, now: float) -> None:
        """Process all events that are due by now, in order."""
        while (event := min(self._events(), key=lambda one: one[0], default=(inf, _nothing)))[0] <= now:
            self._at = max(self._at, event[0])
            event[1]()
        self._at = max(self._at, now)

    def end(self, job: Job, status: Status, output: Any = None, error: str | None = None) -> None:
        job.status, job.output, job.error, job.ended_at = status, output, error, self._at
        self.ended.append(job)

    def cancel(self, job: Job) -> None:
        if job.is_live:
            job.cancel_at = min(job.cancel_at, self._at + self.cancel_seconds)

    def again(self, job: Job) -> None:
        job.status, job.submitted_at, job.started_at, job.ended_at = "IN_QUEUE", self._at, None, None
        job.output = job.error = None
        job.cancel_at = inf

    def forget(self, job: Job) -> None:
        self.jobs.pop(job.id, None)

    def progress(self, job: Job) -> float | None:
        """Return the progress that a worker's handler would report while the job runs."""
        if job.status != "IN_PROGRESS" or job.started_at is None or self.seconds(job) in (0, inf):
            return None
        return min((self._at - job.started_at) / self.seconds(job), 1.0)

    @property
    def running(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.status == "IN_PROGRESS"]

    def _events(self) -> Iterator[tuple[float, Callable[[], None]]]:
        has_room = len(self.running) < self.workers
        for job in list(self.jobs.values()):
            if job.status == "IN_QUEUE" and has_room:
                yield max(job.submitted_at + self.queue_seconds, self._at), partial(self._start, job)
                has_room = False  # the oldest first
            if job.status == "IN_PROGRESS":
                yield self._end_of(job), partial(self._finish, job)
            if job.is_live:
                yield job.cancel_at, partial(self.end, job, "CANCELLED")
            yield self._last_day(job), partial(self.forget, job)

    def _start(self, job: Job) -> None:
        job.status, job.started_at = "IN_PROGRESS", self._at

    def _end_of(self, job: Job) -> float:
        assert job.started_at is not None
        return job.started_at + min(self.seconds(job), job.longest)

    def _finish(self, job: Job) -> None:
        if self.seconds(job) > job.longest:
            self.end(job, "TIMED_OUT", error="job timed out after the execution timeout")
        else:
            self.end(job, *self.outcome(job))

    def _last_day(self, job: Job) -> float:
        dies_at = job.submitted_at + job.ttl
        return dies_at if job.ended_at is None else min(dies_at, job.ended_at + self.retention)


def _nothing() -> None:
    return None
