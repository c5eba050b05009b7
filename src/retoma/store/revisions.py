"""Acts of people on runs that are over: work is done again, or a person's word stands in for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from retoma.errors import AtWork
from retoma.records import Revision
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("revisions")
_NOT_OVER, _LIST_HAS_ITEMS = "RT002", "RT003"


async def rerun_failed(
    database: Database, run: UUID, tenant: int | None, by: str, step: str | None, items: Sequence[str] | None
) -> Revision | None:
    """None if there is no such run."""
    chosen = None if items is None else list(items)
    return await _acted(database, "rerun_failed", run, tenant=tenant, by=by, step=step, items=chosen)


async def edit(
    database: Database, run: UUID, tenant: int | None, by: str, step: str, item: str, value: str
) -> Revision | None:
    """None if there is no such job. `value` is JSON."""
    return await _acted(database, "edit_result", run, tenant=tenant, by=by, step=step, item=item, value=value)


async def skip(
    database: Database, run: UUID, tenant: int | None, by: str, step: str, items: Sequence[str]
) -> Revision | None:
    """None if there are no such jobs."""
    return await _acted(database, "skip_items", run, tenant=tenant, by=by, step=step, items=list(items))


async def _acted(database: Database, act: str, run: UUID, **values: Any) -> Revision | None:
    try:
        row = await database.fetch_one(_SQL[act], run=run, **values)
    except asyncpg.PostgresError as error:
        raise _explained(run, error) from error
    return None if row["revision"] is None else Revision(row["revision"], row["jobs"])


def _explained(run: UUID, error: asyncpg.PostgresError) -> Exception:
    if error.sqlstate == _NOT_OVER:
        return AtWork(f"run {run} is {error}: this needs one that has completed or failed")
    if error.sqlstate == _LIST_HAS_ITEMS:
        return AtWork(f"run {run} would get another list for items that exist already: start a new run")
    return error
