"""Health checks of the database and of the work in it."""

from __future__ import annotations

from datetime import timedelta

import asyncpg

from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("health")


async def get_server(database: Database) -> asyncpg.Record:
    return await database.fetch_one(_SQL["get_server"])


async def list_old_transactions(database: Database, age: timedelta) -> list[asyncpg.Record]:
    return await database.fetch(_SQL["list_old_transactions"], age=age)


async def count_ready_by_queue(database: Database) -> dict[str, int]:
    rows = await database.fetch(_SQL["count_ready_by_queue"])
    return {row["queue"]: row["jobs"] for row in rows}


async def list_undefined_steps(database: Database) -> list[asyncpg.Record]:
    return await database.fetch(_SQL["list_undefined_steps"])
