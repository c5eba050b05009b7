"""Items of fan-outs: the state of each across all steps that go over it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from retoma.records import Item, ItemTotals
from retoma.states import JobState
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("items")
_JSON = ("value", "error", "output")


async def list_items(
    database: Database,
    run: UUID,
    source: str,
    *,
    states: Sequence[JobState] | None = None,
    search: str | None = None,
    only: Sequence[str] | None = None,
    after: int = -1,
    limit: int = 100,
) -> list[Item]:
    if not states and not search and only is None:
        # Select the page first: its states are then computed without reading all other items.
        keys = await database.fetch(_SQL["list_item_keys"], run=run, source=source, after=after, limit=limit)
        only = [row["item"] for row in keys]
    rows = await database.fetch(
        _SQL["list_items"],
        run=run,
        source=source,
        states=list(states) if states else None,
        search=search,
        only=None if only is None else list(only),
        after=after,
        limit=limit,
    )
    return [
        Item(**{**row, "state": JobState(row["state"]), **{name: _parse_json(row[name]) for name in _JSON}})
        for row in rows
    ]


async def count_by_state(database: Database, run: UUID, source: str) -> ItemTotals:
    rows = await database.fetch(_SQL["count_items_by_state"], run=run, source=source)
    last = max((row for row in rows if row["last_at"]), key=lambda row: row["last_at"], default=None)
    return ItemTotals(
        {JobState(row["state"]): row["items"] for row in rows},
        last["last_item"] if last else None,
        last["last_at"] if last else None,
    )


async def count_by_code(database: Database, run: UUID, source: str) -> list[tuple[str, int]]:
    rows = await database.fetch(_SQL["count_items_by_code"], run=run, source=source)
    return [(row["code"], row["items"]) for row in rows]


def _parse_json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
