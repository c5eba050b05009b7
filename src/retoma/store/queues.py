"""What people have set for queues."""

from __future__ import annotations

from dataclasses import dataclass

from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("queues")


@dataclass(frozen=True)
class RestrictedQueue:
    """A queue that a person has paused or limited. It `is_full` while it runs as many jobs as its limit allows."""

    name: str
    is_paused: bool
    is_full: bool


async def has_queue(database: Database, queue: str) -> bool:
    """Return whether a step uses this queue, or a running worker serves it."""
    return bool(await database.fetch_value(_SQL["find_queue"], queue=queue))


async def pause_queue(database: Database, queue: str, by: str, reason: str | None) -> None:
    await database.fetch(_SQL["pause_queue"], queue=queue, by=by, reason=reason)


async def resume_queue(database: Database, queue: str) -> None:
    await database.fetch(_SQL["resume_queue"], queue=queue)


async def limit_queue(database: Database, queue: str, concurrency: int | None) -> None:
    """Limit how many jobs of a queue all workers run at once. None removes the limit."""
    await database.fetch(_SQL["limit_queue"], queue=queue, concurrency=concurrency)


async def list_restricted_queues(database: Database) -> list[RestrictedQueue]:
    return await database.fetch_records(RestrictedQueue, _SQL["list_restricted_queues"])
