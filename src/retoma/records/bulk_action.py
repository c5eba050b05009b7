"""Actions of people on many runs, jobs or deliveries at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field


class BulkKind(StrEnum):
    CANCEL_RUNS = "cancel_runs"
    RERUN_FAILED = "rerun_failed"
    REDELIVER = "redeliver"
    RETRY_JOBS = "retry_jobs"


@dataclass(frozen=True)
class BulkTarget:
    """A run, a job or a delivery that an action would change."""

    subject: Annotated[UUID, Field(description="The run or the delivery.")]
    run: UUID
    run_title: str | None
    pipeline: str
    tenant: str
    step: str | None
    item: str | None


@dataclass(frozen=True)
class BulkPreview:
    """What an action would do if it were confirmed now."""

    count: int
    sample: list[BulkTarget]


@dataclass(frozen=True)
class BulkAction:
    """An action on many targets, which were chosen when it was confirmed."""

    id: UUID
    kind: BulkKind
    tenant: Annotated[str | None, Field(description="Null: of all tenants.")]
    filter: dict[str, Any]
    requested_by: str
    created_at: datetime
    total: Annotated[int, Field(description="The number of targets.")]
    done: int
    skipped: Annotated[int, Field(description="Targets that had changed, so there was nothing to do.")]
    aborted_at: datetime | None
    aborted_by: str | None
    ended_at: datetime | None

    @property
    def left(self) -> int:
        """The targets that it has not acted on, and will not if it was aborted."""
        return self.total - self.done - self.skipped


@dataclass(frozen=True)
class WaitingRetry:
    """A job that waits for its next attempt."""

    run: UUID
    run_title: str | None
    pipeline: str
    tenant: str
    step: str
    item: str
    revision: int
    attempt: int
    failures: int
    code: str
    queue: str
    ready_at: datetime
