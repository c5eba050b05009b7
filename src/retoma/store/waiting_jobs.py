"""Jobs that could run but do not."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("waiting_jobs")


async def list_for_run(database: Database, run: UUID) -> list[asyncpg.Record]:
    return await database.fetch(_SQL["list_waiting_jobs"], run=run)


async def count_held_jobs(database: Database) -> dict[int, int]:
    """Return the number of jobs that each worker holds, by its id."""
    rows = await database.fetch(_SQL["count_held_jobs"])
    return {row["worker"]: row["jobs"] for row in rows}
