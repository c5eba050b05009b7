"""Runs without progress."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from retoma.records import StuckRun
from retoma.states import RunState
from retoma.store.database import Database
from retoma.store.rows import make_record
from retoma.store.statements import statements

_SQL = statements("watchdog")
GRACE = timedelta(seconds=15)  # beyond its timeout, for the worker to report a job


@dataclass(frozen=True)
class StalledRun:
    """A run without progress for `still_for`; `last_progress_event` is its last event of progress.

    `cause` is why it has been stuck since then, and `resumes` how often it was resumed automatically. `is_overdue`
    means that its deadline has passed.
    """

    run: UUID
    version: int
    state: str
    revision: int
    last_progress_event: int
    still_for: timedelta
    stuck_after: timedelta
    max_resumes: int
    cause: str | None
    resumes: int
    at: datetime
    is_overdue: bool


async def claim_runs_to_check(database: Database, limit: int, lease: timedelta) -> list[StalledRun]:
    """Claim runs to check, each for one caller until `lease` is over."""
    return await database.fetch_records(StalledRun, _SQL["claim_runs_to_check"], limit=limit, lease=lease)


async def list_running_jobs(database: Database, run: UUID) -> list[asyncpg.Record]:
    """Return its running jobs, oldest first."""
    return await database.fetch(_SQL["list_running_jobs"], run=run, grace=GRACE)


async def get_last_item(database: Database, run: UUID) -> asyncpg.Record | None:
    return await database.fetchrow(_SQL["get_last_item"], run=run)


async def count_resumes(database: Database, run: UUID) -> int:
    return int(await database.fetch_value(_SQL["count_resumes"], run=run))


async def postpone_check(database: Database, run: UUID, pause: timedelta) -> None:
    await database.fetch(_SQL["postpone_check"], run=run, pause=pause)


async def mark_stuck(
    database: Database, run: UUID, last_progress_event: int, cause: str, data: dict[str, Any], pause: timedelta
) -> bool:
    """Return False if the run has progressed meanwhile."""
    values = {"cause": cause, "data": json.dumps(data), "pause": pause}
    return bool(
        await database.fetch_value(_SQL["mark_stuck"], run=run, last_progress_event=last_progress_event, **values)
    )


async def resume_run(
    database: Database, run: UUID, tenant: int | None, by: str, *, automatic: bool, pause: timedelta
) -> RunState | None:
    """Return the run's new state, or None if there is no such run."""
    state = await database.fetch_value(
        _SQL["resume_run"], run=run, tenant=tenant, by=by, automatic=automatic, pause=pause, grace=GRACE
    )
    return RunState(state) if state else None


async def clear_stuck(database: Database, run: UUID, pause: timedelta) -> None:
    await database.fetch(_SQL["clear_stuck"], run=run, pause=pause)


async def fail_stuck_run(database: Database, run: UUID, last_progress_event: int) -> bool:
    """Return False if the run has progressed meanwhile."""
    return bool(
        await database.fetch_value(
            _SQL["fail_stuck_run"], run=run, last_progress_event=last_progress_event, grace=GRACE
        )
    )


async def set_run_deadline(database: Database, job: Mapping[str, Any], limit: timedelta) -> None:
    """Fail the job's run if it is not over within `limit` from now, unless its deadline is earlier."""
    await database.fetch(_SQL["set_run_deadline"], **job, limit=limit)


async def fail_overdue_run(database: Database, run: UUID) -> bool:
    """Return False if the run is stopping or over."""
    return bool(await database.fetch_value(_SQL["fail_overdue_run"], run=run))


async def list_stuck(
    database: Database, tenants: Sequence[int] | None = None, run: UUID | None = None, limit: int = 100
) -> list[StuckRun]:
    rows = await database.fetch(_SQL["list_stuck"], tenants=tenants, run=run, limit=limit)
    return [make_record(StuckRun, row, "data") for row in rows]
