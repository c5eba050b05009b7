"""Queues, as the jobs on them show."""

from __future__ import annotations

from retoma.records import QueueRecord
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("queues")


async def listed(database: Database) -> list[QueueRecord]:
    """Those that hold anything."""
    return [QueueRecord(**row) for row in await database.fetch(_SQL["list_queues"])]
