"""Jobs, their attempts, the progress of steps, and the items of a fan-out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from retoma.states import JOB_FINAL_STATES, JobState, RunState


@dataclass(frozen=True)
class Job:
    """The current job of a step, or of one item of it. `code` says why it has no result, or why it waits."""

    step: str
    item: str
    revision: int
    state: JobState
    attempt: int
    worker_deaths: int
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
class FailedAttempt:
    """An attempt without a result. `retry_at` is when the next attempt may start, if it was delayed. `provider` is the
    provider that it used."""

    step: str
    item: str
    started_at: datetime
    ended_at: datetime
    retry_at: datetime | None
    provider: str | None = None


@dataclass(frozen=True)
class StepProgress:
    """The number of jobs of one step of a run by state. An `each` step may have none yet.

    `spans` has the first start and the last end of its current jobs of each revision; no end while one is open.
    """

    step: str
    each: bool
    queue: str
    jobs: dict[JobState, int]
    started_at: datetime | None
    ended_at: datetime | None
    created_at: datetime | None
    spans: tuple[tuple[datetime, datetime | None], ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether it has jobs, and all have ended."""
        return bool(self.jobs) and self.ended_count == self.total

    @property
    def duration(self) -> timedelta | None:
        """Return how long its jobs took, without the time between two revisions; None before its end."""
        lasted = [end - start for start, end in self.spans if end is not None]
        return sum(lasted, timedelta()) if lasted and self.is_over else None

    def explain_absence(self, run: RunState) -> Literal["not_needed", "not_run"] | None:
        """Return how to call the state of a step of which no job started in a run that is over, otherwise None."""
        if not run.is_over or self.started_at or any(state is not JobState.CANCELLED for state in self.jobs):
            return None
        return "not_needed" if run is RunState.COMPLETED else "not_run"

    @property
    def ended_count(self) -> int:
        return sum(count for state, count in self.jobs.items() if state in JOB_FINAL_STATES)

    @property
    def total(self) -> int:
        return sum(self.jobs.values())


@dataclass(frozen=True)
class ItemStatus:
    """One item of a fan-out across all of its steps.

    It is `ready` until its first attempt starts, and `running` until its last step has ended.
    """

    item: str
    position: int
    value: Annotated[Any, Field(description="The value that the source step returned.")]
    state: JobState
    step: Annotated[str, Field(description="The current step of the item, or its last one.")]
    attempt: Annotated[int, Field(description="Counts its first attempt and every retry, at any step.")]
    code: str | None
    error: Annotated[Any, Field(description="The last error in this revision.")]
    error_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    output: Annotated[Any, Field(description="The result of the last step.")]
    author: Annotated[str | None, Field(description="The person who entered the result, if any.")]


@dataclass(frozen=True)
class ItemTotals:
    """`last_item` is the item that reached a final state last, at `last_at`."""

    states: dict[JobState, int]
    last_item: str | None
    last_at: datetime | None

    @property
    def total(self) -> int:
        return sum(self.states.values())
