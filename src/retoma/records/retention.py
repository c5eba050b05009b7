"""How long ended runs are kept, and what was removed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import Field


class FinalClass(StrEnum):
    """How a run ended, for the rules: `failed` is also a run that completed with errors."""

    ENDED = "ended"
    FAILED = "failed"


@dataclass(frozen=True)
class RetentionRule:
    """How long the runs of a pipeline, of a tenant or of both are kept after they ended."""

    pipeline: Annotated[str | None, Field(description="Null: any.")]
    tenant: Annotated[str | None, Field(description="Null: any.")]
    final_class: FinalClass
    keep: Annotated[timedelta | None, Field(description="Null: for ever.")]
    set_by: Annotated[str | None, Field(description="Null: a setting, or the pipeline itself.")]
    set_at: datetime | None


@dataclass(frozen=True)
class ExpiredRuns:
    """Runs that would be removed now. `bytes` is an estimate of what they take in the database."""

    pipeline: str
    final_class: FinalClass
    runs: int
    bytes: int
    oldest_end: datetime


@dataclass(frozen=True)
class RetentionPreview:
    """What would be removed now, and the files that only these runs name. If not `is_complete`, there may be more."""

    runs: int
    bytes: int
    files: int
    file_bytes: Annotated[int, Field(description="About how many bytes the files have, by the data of the runs.")]
    groups: list[ExpiredRuns]
    is_complete: bool


@dataclass(frozen=True)
class RunHold:
    """A run that is kept whatever the rules say."""

    run: UUID
    tenant: str
    pipeline: str
    title: str | None
    held_by: str
    held_at: datetime
    reason: str


@dataclass(frozen=True)
class Erasure:
    """What was erased at once. The files are deleted by workers and servers, unless something other than a run names
    them."""

    runs: int
    files: Annotated[
        int, Field(description="Files that no run names any more: they are deleted within three days, not at once.")
    ]


@dataclass(frozen=True)
class RunRemoval:
    """How many runs of a pipeline and a tenant were removed on a day of UTC: `expired` by a rule, or `erased`."""

    day: date
    tenant: str
    pipeline: str
    cause: str
    runs: int
    jobs: int
    last_at: datetime


@dataclass(frozen=True)
class RetentionTotals:
    """What was removed since the database exists, and when the last passes over runs and files ended."""

    removed_runs: int
    removed_files: int
    removed_file_bytes: int
    pass_ended_at: Annotated[
        datetime | None, Field(description="When the last pass over all runs ended. Null: none has.")
    ]
    files_checked_at: datetime | None
    indexed_at: Annotated[
        datetime | None, Field(description="When the files of all runs were indexed; no file is removed before.")
    ]


@dataclass(frozen=True)
class TableSize:
    """What a table takes on disk. The rows are an estimate."""

    table: str
    rows: int
    table_bytes: int
    index_bytes: int

    @property
    def bytes(self) -> int:
        return self.table_bytes + self.index_bytes
