"""Events of all runs in the order of their ids, without gaps and without duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

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
    database: Database,
    after: int,
    through: int,
    *,
    run: UUID | None = None,
    tenants: Sequence[int] | None = None,
    limit: int,
) -> list[LiveEvent]:
    """Return events of a run, of these tenants, or of all."""
    statement = _SQL["list_events_between" if run is None else "list_run_events_between"]
    only = {"tenants": tenants} if run is None else {"run": run}
    rows = await database.fetch(statement, after=after, through=through, limit=limit, **only)
    return [LiveEvent(**{**row, "data": drop_stack(parse_event_data(row))}) for row in rows]


async def get_run_states(database: Database, runs: Iterable[UUID], *, only_ended: bool = False) -> dict[UUID, RunState]:
    """Return the states of these runs, or of those that have ended."""
    rows = await database.fetch(_SQL["get_run_states"], runs=list(runs), only_ended=only_ended)
    return {row["id"]: RunState(row["state"]) for row in rows}


async def get_last_event_id(database: Database, run: UUID) -> int:
    """Return the id of the run's newest event, even if it is not readable yet; 0 if there is none."""
    return await database.fetch_value(_SQL["get_last_event_id"], run=run) or 0
