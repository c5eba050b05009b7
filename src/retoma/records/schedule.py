"""Schedules: rules that start runs, and what became of the times at which they were due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field


class CatchUp(StrEnum):
    """What happens to times at which nothing could start, for example because every process was stopped."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class Overlap(StrEnum):
    """Whether a run starts while the last run of the schedule is not over."""

    ALLOW = "allow"
    SKIP = "skip"


class PauseReason(StrEnum):
    PERSON = "person"
    REMOVED = "removed"


class NoStart(StrEnum):
    """Why a due time started no run."""

    PAUSED = "paused"
    MISSED = "missed"
    OVERLAPPING = "overlapping"
    INVALID_INPUTS = "invalid_inputs"


class DeclaredBy(StrEnum):
    CODE = "code"
    API = "api"


@dataclass(frozen=True)
class Schedule:
    """A rule that starts runs of a pipeline: either `cron` or `every_seconds`."""

    id: int
    tenant: str
    name: str
    title: str | None
    pipeline: str
    cron: Annotated[str | None, Field(description="Minute, hour, day of the month, month, day of the week.")]
    every_seconds: Annotated[float | None, Field(description="Of elapsed time, counted from `anchor_at`.")]
    time_zone: str
    anchor_at: datetime
    inputs: Annotated[dict[str, Any], Field(description="May have placeholders such as `{{ due_date }}`.")]
    catch_up: CatchUp
    catch_up_limit: Annotated[int, Field(description="How many missed runs `all` starts at most, the latest ones.")]
    jitter_seconds: Annotated[float, Field(description="Each run starts up to so much later than it is due.")]
    overlap: Overlap
    declared_by: DeclaredBy
    application: Annotated[str | None, Field(description="The application whose code declares it.")]
    revision: Annotated[int, Field(description="Counts the changes.")]
    next_at: Annotated[datetime | None, Field(description="When it is due next. Null: never again.")]
    starts_at: Annotated[datetime | None, Field(description="`next_at` with its jitter.")]
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: Annotated[PauseReason | None, Field(description="`removed`: the code no longer declares it.")]
    last_due_at: Annotated[datetime | None, Field(description="When the last run that it started was due.")]
    last_run: UUID | None
    created_at: datetime
    changed_at: datetime
    changed_by: str

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None

    @property
    def every(self) -> timedelta | None:
        return None if self.every_seconds is None else timedelta(seconds=self.every_seconds)

    @property
    def jitter(self) -> timedelta:
        return timedelta(seconds=self.jitter_seconds)

    @property
    def settings(self) -> Mapping[str, Any]:
        """What a person or the code can set."""
        names = ("title", "pipeline", "cron", "every_seconds", "time_zone", "inputs", "catch_up", "catch_up_limit")
        return {name: getattr(self, name) for name in (*names, "jitter_seconds", "overlap")}


@dataclass(frozen=True)
class ScheduleOccurrence:
    """A due time, or several in a row that started nothing for the same reason. Either `run` or `reason` is set."""

    schedule: int
    due_at: datetime
    recorded_at: datetime
    count: Annotated[int, Field(description="The due times in a row that this stands for, at most 1,000.")]
    triggered_by: Annotated[str | None, Field(description="Who started it by hand.")]
    run: UUID | None
    reason: NoStart | None
    message: str | None
    run_is_removed: Annotated[bool, Field(description="The run was removed since, by retention or by a person.")]
