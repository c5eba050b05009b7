"""The inbox: reviews in the order in which people work through them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from retoma.records import InboxCount, InboxEntry, UndoableDecision
from retoma.records.run import describe_input
from retoma.states import ReviewState
from retoma.store.database import Database, Row
from retoma.store.rows import parse_json
from retoma.store.statements import statements

_SQL = statements("inbox")


@dataclass(frozen=True)
class InboxFilter:
    """`title` is a part of the run's title. In `assignees`, empty text stands for nobody. With `person`, they are the
    names that stand for this person."""

    tenants: Sequence[int] | None = None
    pipelines: Sequence[str] | None = None
    step: str | None = None
    assignees: Sequence[str] | None = None
    title: str | None = None
    person: int | None = None


async def list_open(
    database: Database,
    wanted: InboxFilter,
    kinds: Sequence[tuple[str, str]],
    *,
    overdue: bool,
    after: UUID | None,
    offset: int,
    limit: int,
) -> list[InboxEntry]:
    """List open reviews; those of other kinds than `kinds` come last. `after` is a review, which may be decided."""
    order = [f"{pipeline}\n{step}" for pipeline, step in kinds]
    values = {**vars(wanted), "kinds": order, "overdue": overdue, "after": after, "offset": offset, "limit": limit}
    return [_make_entry(row) for row in await database.fetch(_SQL["list_open"], **values)]


async def list_ended(
    database: Database, wanted: InboxFilter, states: Sequence[ReviewState], *, offset: int, limit: int
) -> list[InboxEntry]:
    values = {**vars(wanted), "states": states, "offset": offset, "limit": limit}
    return [_make_entry(row) for row in await database.fetch(_SQL["list_ended"], **values)]


async def count_open(database: Database, tenants: Sequence[int] | None, title: str | None) -> list[InboxCount]:
    return await database.fetch_records(InboxCount, _SQL["count_open"], tenants=tenants, title=title)


async def list_undoable(
    database: Database, by: str, person: int | None, tenants: Sequence[int] | None, limit: int
) -> list[UndoableDecision]:
    """List the decisions of this person, or without a number of this name."""
    rows = await database.fetch(_SQL["list_undoable"], by=by, person=person, tenants=tenants, limit=limit)
    return [UndoableDecision(_make_entry(row), row["effective_at"], row["decision_key"]) for row in rows]


def _make_entry(row: Row) -> InboxEntry:
    values: dict[str, Any] = {name: row[name] for name in InboxEntry.__dataclass_fields__}
    title = row["title"] or describe_input(parse_json(row["input"]))
    return InboxEntry(
        **values | {"title": title, "state": ReviewState(row["state"]), "has_form": bool(row["has_form"])}
    )


async def save_draft(database: Database, review: UUID, person: str, draft: Any) -> None:
    await database.fetch(_SQL["save_draft"], review=review, person=person, draft=json.dumps(draft))


async def get_draft(database: Database, review: UUID, person: str) -> Any:
    return await _get_json(database, "get_draft", "draft", review=review, person=person)


async def save_batch(database: Database, batch: UUID, person: str, outcomes: Any) -> None:
    await database.fetch(_SQL["save_batch"], batch=batch, person=person, outcomes=json.dumps(outcomes))


async def get_batch(database: Database, batch: UUID, person: str) -> Any:
    return await _get_json(database, "get_batch", "outcomes", batch=batch, person=person)


async def save_settings(database: Database, person: str, settings: Any) -> None:
    await database.fetch(_SQL["save_settings"], person=person, settings=json.dumps(settings))


async def get_settings(database: Database, person: str) -> Any:
    return await _get_json(database, "get_settings", "settings", person=person)


async def _get_json(database: Database, statement: str, column: str, **values: Any) -> Any:
    """Return the document, or None if there is none."""
    row = await database.fetchrow(_SQL[statement], **values)
    return None if row is None else parse_json(row[column])
