"""Actions on many runs, jobs or deliveries, and jobs that wait for their next attempt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from retoma.records import BulkAction, BulkKind, BulkTarget, WaitingRetry
from retoma.store.database import Database, Row
from retoma.store.statements import statements

_SQL = statements("bulk_actions")
MAX_TARGETS = 100_000
Filter = Mapping[str, Any]


async def count_targets(database: Database, kind: BulkKind, tenant: int | None, wanted: Filter) -> int:
    values = {"action_kind": kind, "tenant": tenant, "filter": json.dumps(wanted), "limit": MAX_TARGETS}
    return int(await database.fetch_value(_SQL["count_targets"], **values))


async def list_targets(
    database: Database, kind: BulkKind, tenant: int | None, wanted: Filter, limit: int
) -> list[BulkTarget]:
    values = {"action_kind": kind, "tenant": tenant, "filter": json.dumps(wanted), "limit": limit}
    return await database.fetch_records(BulkTarget, _SQL["list_targets"], **values)


async def create_action(
    database: Database,
    id: UUID,  # noqa: A002
    kind: BulkKind,
    tenant: int | None,
    wanted: Filter,
    *,
    by: str,
    expected: int | None,
) -> int | None:
    """Choose the targets, unless there is an action with this id; return their number. None: more than `expected`."""
    total: int | None = await database.fetch_value(
        _SQL["create_bulk_action"],
        id=id,
        kind=kind,
        tenant=tenant,
        filter=json.dumps(wanted),
        by=by,
        expected=expected,
        limit=MAX_TARGETS,
    )
    return total


async def list_actions(
    database: Database,
    *,
    id: UUID | None = None,  # noqa: A002
    tenants: Sequence[int] | None = None,
    limit: int = 50,
) -> list[BulkAction]:
    """Return actions, newest first."""
    rows = await database.fetch(_SQL["list_bulk_actions"], id=id, tenants=tenants, limit=limit)
    return [_make_action(row) for row in rows]


async def list_open_actions(database: Database, limit: int) -> list[UUID]:
    return await database.fetch_column(_SQL["list_open_bulk_actions"], limit=limit)


async def count_open_actions(database: Database, tenant: int | None) -> int:
    """Return how many actions of this tenant are in progress; None: how many of all tenants together."""
    return int(await database.fetch_value(_SQL["count_open_bulk_actions"], tenant=tenant))


async def advance_action(database: Database, id: UUID) -> bool:  # noqa: A002
    """Act on the next target, in one transaction. Return False if none is left."""
    return bool(await database.fetch_value(_SQL["advance_bulk_action"], id=id))


async def abort_action(database: Database, id: UUID, by: str) -> bool:  # noqa: A002
    """Leave out the remaining targets. Return False if the action had ended."""
    return bool(await database.fetch_value(_SQL["abort_bulk_action"], id=id, by=by))


async def retry_job(database: Database, *, run: UUID, step: str, item: str, tenant: int | None, by: str) -> bool | None:
    """Let a job start now. Return False if it does not wait for an attempt, and None if there is no such job."""
    released: bool | None = await database.find_value(
        _SQL["retry_job"], run=run, step=step, item=item, tenant=tenant, by=by
    )
    return released


async def list_retries(
    database: Database,
    *,
    tenants: Sequence[int] | None,
    pipelines: Sequence[str] | None,
    queue: str | None,
    step: str | None,
    code: str | None,
    limit: int,
) -> list[WaitingRetry]:
    """Return jobs that wait for their next attempt, the next one first."""
    values = {"tenants": tenants, "pipelines": pipelines, "queue": queue, "step": step, "code": code, "limit": limit}
    return await database.fetch_records(WaitingRetry, _SQL["list_retries"], **values)


def _make_action(row: Row) -> BulkAction:
    """The tenants of a person who may not act on all of them limit the action, but are not part of its filter."""
    wanted = json.loads(row["filter"])
    wanted.pop("tenants", None)
    return BulkAction(**{**row, "kind": BulkKind(row["kind"]), "filter": wanted})
