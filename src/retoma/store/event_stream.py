"""Events of all runs in the order of their ids, without gaps and without duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from retoma.masking import drop_stack
from retoma.records import LiveEvent
from retoma.states import RunState
from retoma.store.database import Database
from retoma.store.runs import parse_event_data
from retoma.store.statements import statements

_SQL = statements("event_stream")


@dataclass(frozen=True)
class Mark:
    """Once the transactions `writers` have ended, no more events up to `number` can appear. `settled` is the number of
    the previous mark if its writers have ended, else None."""

    settled: int | None
    number: int
    writers: Sequence[str]


NO_MARK = Mark(None, 0, ())


async def advance_mark(database: Database, mark: Mark) -> Mark:
    return Mark(**await database.fetch_one(_SQL["advance_mark"], number=mark.number, writers=list(mark.writers)))


async def list_between(
    database: Database, after: int, through: int, *, tenant: int | None = None, limit: int
) -> list[LiveEvent]:
    """Return events of all tenants, or of one."""
    rows = await database.fetch(_SQL["list_events_between"], after=after, through=through, tenant=tenant, limit=limit)
    return [_make_event(row) for row in rows]


async def list_run_events_between(
    database: Database, run: UUID, after: int, through: int, *, limit: int
) -> list[LiveEvent]:
    rows = await database.fetch(_SQL["list_run_events_between"], run=run, after=after, through=through, limit=limit)
    return [_make_event(row) for row in rows]


async def get_run_states(database: Database, runs: Iterable[UUID]) -> dict[UUID, RunState]:
    rows = await database.fetch(_SQL["get_run_states"], runs=list(runs))
    return {row["id"]: RunState(row["state"]) for row in rows}


async def get_last_event_id(database: Database, run: UUID) -> int:
    """Return the id of the run's newest event, even if it is not readable yet; 0 if there is none."""
    return (await database.fetch_one(_SQL["get_last_event_id"], run=run))["id"] or 0


def _make_event(row: asyncpg.Record) -> LiveEvent:
    return LiveEvent(**{**row, "data": drop_stack(parse_event_data(row))})
