"""Schedules, and the history of the times at which they were due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from retoma.metrics import ScheduleMetrics
from retoma.records import CatchUp, DeclaredBy, NoStart, Overlap, PauseReason, Schedule, ScheduleOccurrence
from retoma.store.database import Database, Row
from retoma.store.rows import make_record
from retoma.store.statements import statements

_SQL = statements("schedules")
KEPT_OCCURRENCES = 1_000  # of each schedule
MAX_SCHEDULES = 10_000
STARTED = "started"  # the outcome of a due time that started a run; the others are those of NoStart


class ScheduledStart(NamedTuple):
    """The run that a schedule starts. `input` is JSON."""

    run: UUID
    version: int
    input: str
    title: str | None


@dataclass(frozen=True)
class Fired:
    """What became of a due time. Without a run or a reason, only missed times were recorded."""

    run: UUID | None
    reason: NoStart | None
    message: str | None
    late_seconds: float | None


async def list_schedules(
    database: Database,
    *,
    ids: Sequence[int] | None = None,
    tenants: Sequence[int] | None = None,
    name: str | None = None,
    pipelines: Sequence[str] | None = None,
    application: str | None = None,
    limit: int = MAX_SCHEDULES,
) -> list[Schedule]:
    """Return schedules by tenant and name."""
    rows = await database.fetch(
        _SQL["list_schedules"],
        ids=ids,
        tenants=tenants,
        name=name,
        pipelines=None if pipelines is None else list(pipelines),
        application=application,
        limit=limit,
    )
    return [_make_schedule(row) for row in rows]


async def list_due(database: Database, pipelines: Sequence[str], limit: int) -> list[Schedule]:
    """Return the schedules of these pipelines that must start a run now; if there are too many, the latest ones."""
    ids = await database.fetch_column(_SQL["list_due_schedules"], pipelines=list(pipelines), limit=limit)
    return await list_schedules(database, ids=ids) if ids else []


async def add_schedule(database: Database, values: Mapping[str, Any]) -> int | None:
    """Return its id, or None if the tenant has a schedule with this name."""
    added: int | None = await database.find_value(_SQL["add_schedule"], **values)
    return added


async def change_schedule(database: Database, values: Mapping[str, Any]) -> bool:
    """Return False if it was changed since the caller read it."""
    return await database.find_value(_SQL["change_schedule"], **values) is not None


async def pause_schedule(database: Database, id: int, by: str, reason: PauseReason) -> bool:  # noqa: A002
    """Return False if it was paused already."""
    return await database.find_value(_SQL["pause_schedule"], id=id, by=by, reason=str(reason)) is not None


async def resume_schedule(
    database: Database,
    schedule: Schedule,
    next_at: datetime | None,
    starts_at: datetime | None,
    *,
    skipped: int,
    by: str,
) -> bool:
    """Return False if it was not paused, or was changed since the caller read it."""
    return bool(
        await database.fetch_value(
            _SQL["resume_schedule"],
            id=schedule.id,
            revision=schedule.revision,
            next_at=next_at,
            starts_at=starts_at,
            skipped=skipped,
            by=by,
            keep=KEPT_OCCURRENCES,
        )
    )


async def delete_schedule(database: Database, id: int) -> bool:  # noqa: A002
    """Delete it with its history. Its runs stay. Return False if there was none."""
    return await database.find_value(_SQL["delete_schedule"], id=id) is not None


async def fire_schedule(
    database: Database,
    schedule: Schedule,
    *,
    missed: int,
    due_at: datetime | None,
    start: ScheduledStart | None,
    key: str | None,
    digest: bytes,
    reason: NoStart | None,
    message: str | None,
    next_at: datetime | None,
    starts_at: datetime | None,
) -> Fired | None:
    """Start the run of a due time, record it and set the next due time, in one transaction.

    Return None if another process did so, or the schedule was changed since the caller read it.
    """
    row = await database.fetchrow(
        _SQL["fire_schedule"],
        id=schedule.id,
        revision=schedule.revision,
        expected_at=schedule.next_at,
        missed=missed,
        due_at=due_at,
        reason=reason,
        message=message,
        key=key,
        **_list_values(start),
        digest=digest,
        next_at=next_at,
        starts_at=starts_at,
        keep=KEPT_OCCURRENCES,
    )
    if row is None:
        return None
    return Fired(row["run"], row["reason"] and NoStart(row["reason"]), row["message"], row["late_seconds"])


async def trigger_schedule(
    database: Database,
    schedule: int,
    trigger: str,
    by: str,
    *,
    key: str,
    start: ScheduledStart,
    digest: bytes,
) -> tuple[UUID, bool] | None:
    """Start a run now, and return it and whether it is new. Return None if there is no such schedule."""
    row = await database.fetchrow(
        _SQL["trigger_schedule"],
        id=schedule,
        trigger=trigger,
        by=by,
        key=key,
        **_list_values(start),
        digest=digest,
        keep=KEPT_OCCURRENCES,
    )
    return None if row is None else (row["run"], row["created"])


async def list_occurrences(
    database: Database, schedule: int, before: datetime | None, limit: int
) -> list[ScheduleOccurrence]:
    """Return what became of due times, newest first."""
    rows = await database.fetch(_SQL["list_occurrences"], schedule=schedule, before=before, limit=limit)
    return [
        make_record(ScheduleOccurrence, row, reason=None if row["reason"] is None else NoStart(row["reason"]))
        for row in rows
    ]


async def get_metrics(database: Database) -> ScheduleMetrics:
    counters = await database.fetch(_SQL["list_schedule_counters"])
    return ScheduleMetrics(
        outcomes={(row["pipeline"], row["outcome"]): row["count"] for row in counters},
        late={row["pipeline"]: timedelta(seconds=row["late_seconds"]) for row in counters if row["outcome"] == STARTED},
        late_for=timedelta(seconds=await database.fetch_value(_SQL["get_schedule_lateness"])),
    )


def _list_values(start: ScheduledStart | None) -> dict[str, Any]:
    return dict.fromkeys(ScheduledStart._fields) if start is None else start._asdict()


def _make_schedule(row: Row) -> Schedule:
    return make_record(
        Schedule,
        row,
        "inputs",
        catch_up=CatchUp(row["catch_up"]),
        overlap=Overlap(row["overlap"]),
        declared_by=DeclaredBy(row["declared_by"]),
        pause_reason=None if row["pause_reason"] is None else PauseReason(row["pause_reason"]),
    )
