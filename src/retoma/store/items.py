"""Items of fan-outs: the state of each across all steps that iterate over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from retoma.records import ItemStatus, ItemTotals
from retoma.states import JobState
from retoma.store.database import Database
from retoma.store.rows import make_record
from retoma.store.statements import statements

_SQL = statements("items")


@dataclass(frozen=True)
class ItemFilter:
    """`search` matches part of an item's key; `only` are keys. `after` is the last position of the previous page."""

    states: Sequence[JobState] | None = None
    search: str | None = None
    only: Sequence[str] | None = None
    after: int = -1
    limit: int = 100


async def list_items(database: Database, run: UUID, source: str, wanted: ItemFilter) -> list[ItemStatus]:
    if not wanted.states and not wanted.search and wanted.only is None:
        # Select the page first: its states are then computed without reading all other items.
        page = {"after": wanted.after, "limit": wanted.limit}
        keys = await database.fetch_column(_SQL["list_item_keys"], run=run, source=source, **page)
        wanted = replace(wanted, only=keys)
    rows = await database.fetch(_SQL["list_items"], run=run, source=source, **vars(wanted))
    return [make_record(ItemStatus, row, "value", "error", "output", state=JobState(row["state"])) for row in rows]


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
