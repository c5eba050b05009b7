"""The providers of chains that attempts use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from uuid import UUID

from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("attempt_providers")


@dataclass(frozen=True, slots=True)
class AttemptProvider:
    run: UUID
    step: str
    item: str
    revision: int
    attempt: int
    fence: int
    provider: str


_COLUMNS = tuple(field.name for field in fields(AttemptProvider))


async def write(database: Database, entries: Sequence[AttemptProvider]) -> None:
    """Record these providers. Writing one twice changes nothing."""
    columns = {name: [getattr(entry, name) for entry in entries] for name in _COLUMNS}
    await database.fetch(_SQL["write_attempt_providers"], **columns)
