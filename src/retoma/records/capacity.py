"""Capacity: pools, and the running workers and servers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated
from uuid import UUID

from pydantic import Field


@dataclass(frozen=True)
class Pool:
    """The current state of a pool. While its circuit breaker is open, no job starts until `open_until`, and then one at
    a time."""

    name: str
    capacity: int
    used: int
    holders: Annotated[int, Field(description="The number of jobs that hold the used slots.")]
    waiting: Annotated[int, Field(description="The number of ready jobs that wait for slots.")]
    rate: float | None
    burst: int
    per_tenant: Annotated[int | None, Field(description="The maximum number of slots that one tenant may hold.")]
    paused_until: datetime | None
    failures: Annotated[int, Field(description="Consecutive failures of the provider.")]
    open_until: Annotated[
        datetime | None,
        Field(description="The circuit breaker is open until this time; then one job probes the provider."),
    ]
    problem: Annotated[
        str | None, Field(description="PROVIDER_DOWN or PROVIDER_REJECTED, until a call to the provider succeeds.")
    ]

    @property
    def free(self) -> int:
        return max(0, self.capacity - self.used)


@dataclass(frozen=True)
class PoolJob:
    """A job that holds slots of a pool, or waits for them. `since` is when it started, or became ready."""

    pool: str
    slots: int
    run: UUID
    run_title: str | None
    pipeline: str
    tenant: str
    step: str
    item: str
    state: Annotated[
        str, Field(description="`running` or, while its external work is in progress, `parked`; or `ready`.")
    ]
    since: datetime | None


@dataclass(frozen=True)
class AutoscaleAdvice:
    """How many workers a queue needs now, and why."""

    queue: str
    queued: Annotated[int, Field(description="The number of ready jobs.")]
    running: int
    oldest_wait_seconds: Annotated[
        float, Field(description="How long the next job has been ready; 0 if there is none.")
    ]
    desired_workers: Annotated[int, Field(description="The number of workers that should serve the queue.")]
    reason: Annotated[str, Field(description="Why, for people. Its text may change.")]


@dataclass(frozen=True)
class Worker:
    id: int
    name: str
    queues: list[str]
    concurrency: int
    started_at: datetime
    heartbeat_age: timedelta

    ended_at: datetime | None
    heartbeat_timeout: timedelta | None = None  # None for a worker of an earlier release
    pipelines: list[str] | None = None  # None for a worker of an earlier release, which may serve any
    allow_hosts: list[str] | None = None  # the private hosts that it may call; None if unknown
    drain_requested_at: datetime | None = None  # since then it claims nothing; it ends when its jobs have ended
    drain_requested_by: str | None = None

    @property
    def is_draining(self) -> bool:
        return self.drain_requested_at is not None

    def is_alive(self, timeout: timedelta) -> bool:
        """Return whether the last heartbeat is within the worker's own timeout, or else within `timeout`."""
        return self.heartbeat_age <= (self.heartbeat_timeout or timeout)

    def serves(self, pipeline: str) -> bool:
        """Return whether the worker's application defines this pipeline, so that it can run its jobs."""
        return self.pipelines is None or pipeline in self.pipelines


@dataclass(frozen=True)
class RunningJob:
    """A job that a worker has claimed and not ended."""

    worker: int
    run: UUID
    run_title: str | None
    pipeline: str
    tenant: str
    step: str
    item: str
    revision: int
    attempt: int
    started_at: datetime


@dataclass(frozen=True)
class JobStack:
    """Where a running job is."""

    run: UUID
    step: str
    item: str
    revision: int
    attempt: int
    seconds: Annotated[float | None, Field(description="Since its function started; null if it has not.")]
    stack: Annotated[str | None, Field(description="Secrets and folders are masked. Null for a step with `isolation`.")]


@dataclass(frozen=True)
class WorkerStacks:
    """A request for the stacks of the jobs that a worker runs. It answers with its next heartbeat."""

    worker: int
    requested_at: datetime
    requested_by: str
    answered_at: datetime | None
    jobs: list[JobStack]


@dataclass(frozen=True)
class Server:
    """A running server: the private hosts that it accepts in URLs, and its public URL."""

    allow_hosts: list[str]
    public_url: str | None
