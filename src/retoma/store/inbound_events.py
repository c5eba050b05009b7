"""Events that other systems send."""

from __future__ import annotations

import json
from collections.abc import Sequence

from retoma.records import InboundEvent
from retoma.store.database import Database
from retoma.store.rows import make_record
from retoma.store.statements import statements

_SQL = statements("inbound_events")


async def record_events(
    database: Database, app: str, stream: str, tenant: int | None, events: Sequence[InboundEvent]
) -> set[int]:
    """Keep events, and return the numbers of those that are new."""
    added = await database.fetch_column(
        _SQL["record_events"],
        app=app,
        stream=stream,
        tenant=tenant,
        sequences=[event.sequence for event in events],
        event_ids=[event.event_id for event in events],
        bodies=[json.dumps(event.body) for event in events],
    )
    return set(added)


async def find_event_ids(database: Database, app: str, stream: str, sequences: Sequence[int]) -> dict[int, str | None]:
    """Return the ids of the known events by their numbers, None for one that was removed."""
    rows = await database.fetch(_SQL["find_event_ids"], app=app, stream=stream, sequences=list(sequences))
    return {row["sequence"]: row["event_id"] for row in rows}


async def list_events(database: Database, app: str, stream: str, after: int) -> list[InboundEvent]:
    rows = await database.fetch(_SQL["list_events"], app=app, stream=stream, after=after)
    return [make_record(InboundEvent, row, "body") for row in rows]


async def find_gap(database: Database, app: str, stream: str) -> int | None:
    """Return the number of the last event before the first gap, or None if there is no gap."""
    last: int | None = await database.find_value(_SQL["find_gap"], app=app, stream=stream)
    return last
