"""What the client gives back: facts about runs, jobs, events and workers, as the database had them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from retoma.states import JobState, RunState


@dataclass(frozen=True)
class Run:
    id: UUID
    tenant: str
    pipeline: str
    version: int
    state: RunState
    revision: int
    input: Any
    created_at: datetime
    run_at: datetime
    ended_at: datetime | None

    @property
    def is_over(self) -> bool:
        return self.state.is_over


@dataclass(frozen=True)
class Job:
    """The current job of a step, or of one item of it. `code` says why it has no result, or why it waits."""

    step: str
    item: str
    revision: int
    state: JobState
    attempt: int
    deaths: int
    queue: str
    code: str | None
    position: int
    waiting_on: int
    created_at: datetime
    ready_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    output: Any


@dataclass(frozen=True)
class Event:
    id: int
    at: datetime
    kind: str
    revision: int
    attempt: int | None
    worker: int | None
    step: str | None
    item: str | None
    data: Any


@dataclass(frozen=True)
class StepProgress:
    """How many jobs of one step of a run are in which state. An `each` step may have none yet."""

    step: str
    each: bool
    queue: str
    jobs: dict[JobState, int]
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def total(self) -> int:
        return sum(self.jobs.values())


@dataclass(frozen=True)
class WorkerRecord:
    id: int
    name: str
    queues: list[str]
    concurrency: int
    started_at: datetime
    silent_for: timedelta
    ended_at: datetime | None


class WaitReason(StrEnum):
    """Why a job that needs nothing more does not run."""

    DELAYED = "delayed"
    UNDEFINED_STEP = "no worker defines this step"
    NO_WORKER = "no live worker serves its queue"
    SUSPECT = "it ran when a worker died, so it runs alone"
    CAPACITY = "every worker of its queue is full"
    NOT_TAKEN = "a worker of its queue has room, but may not define its pipeline"


@dataclass(frozen=True)
class Wait:
    """Jobs of one step that wait for the same reason; `until` is when the first of them is due, `item` one of them."""

    step: str
    queue: str
    jobs: int
    item: str
    reason: WaitReason
    until: datetime | None
    code: str | None
