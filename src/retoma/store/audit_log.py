"""The audit log: entries are written in the transaction of what they report, and never changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec

from retoma.records import Actor, ActorKind, AuditAction, AuditEntry
from retoma.store.database import Connection, Database, Row
from retoma.store.rows import make_record
from retoma.store.statements import Statement, statements

_SQL = statements("audit_log")
Values = Mapping[str, Any]


def has_changed(rows: list[Row]) -> bool:
    """Return whether a statement says that it changed something: its first value is neither null nor false."""
    return bool(rows) and rows[0][0] is not None and rows[0][0] is not False


@dataclass(frozen=True)
class PendingEntry:
    """An entry to write with one of the named statements, if `applies` to the rows that it returns.

    `id` makes it the same entry if it is written twice. `after` and `object_id` may be computed from the rows.
    """

    statements: tuple[str, ...]
    actor: Actor
    action: AuditAction
    object_id: str | Callable[[list[Row]], str] | None
    tenant: int | None = None
    before: Values | None = None
    after: Values | Callable[[list[Row]], Values] | None = None
    applies: Callable[[list[Row]], bool] = has_changed
    id: UUID = field(default_factory=uuid4)

    def belongs_to(self, statement: Statement) -> bool:
        return statement.name in self.statements

    async def write(self, connection: Connection, rows: list[Row]) -> None:
        if self.applies(rows):
            record = _SQL["record_audit_entry"]
            await connection.execute(record.sql, *record.bind(self._list_values(rows)))

    def _list_values(self, rows: list[Row]) -> dict[str, Any]:
        return {
            "entry": self.id,
            "actor_kind": str(self.actor.kind),
            "actor_id": self.actor.id,
            "actor_name": self.actor.name,
            "address": self.actor.address,
            "action": str(self.action),
            "object_kind": self.action.object_kind,
            "object_id": self.object_id(rows) if callable(self.object_id) else self.object_id,
            "tenant": self.tenant,
            "before": _encode(self.before),
            "after": _encode(self.after(rows) if callable(self.after) else self.after),
        }


async def record(database: Database, entry: PendingEntry) -> None:
    """Write an entry about something that changed nothing in the database, such as a failed login."""
    await database.fetch(_SQL["record_audit_entry"], **entry._list_values([]))


@dataclass(frozen=True)
class AuditFilter:
    """`action` is one action, or the kind of an object for all actions on it. `before_id` is the last entry seen."""

    tenants: Sequence[int] | None = None
    actor: str | None = None
    action: str | None = None
    object_kind: str | None = None
    object_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before_id: int | None = None
    limit: int = 50


async def list_entries(database: Database, wanted: AuditFilter) -> list[AuditEntry]:
    rows = await database.fetch(_SQL["list_audit_entries"], **vars(wanted))
    return [make_record(AuditEntry, row, "before", "after", actor_kind=ActorKind(row["actor_kind"])) for row in rows]


async def list_actors(database: Database, tenants: Sequence[int] | None, limit: int) -> list[str]:
    return await database.fetch_column(_SQL["list_audit_actors"], tenants=tenants, limit=limit)


async def delete_entries(database: Database, before: datetime) -> int:
    """Delete the entries before a time. Return how many there were."""
    count: int = await database.fetch_value(_SQL["delete_audit_entries"], before=before)
    return count


def _encode(values: Values | None) -> str | None:
    return None if values is None else msgspec.json.encode(values, enc_hook=str).decode()
