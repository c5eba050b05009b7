"""The database's clock, and its replacement in tests."""

from __future__ import annotations

from datetime import datetime

from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("clock")


async def now(database: Database) -> datetime:
    at: datetime = await database.fetch_value(_SQL["get_time"])
    return at


async def make_settable(database: Database) -> None:
    """Let `set_to` control the clock from now on. For tests only."""
    if await database.fetch_value(_SQL["is_settable"]):
        return
    async with database.connection() as connection:
        for name in ("add_clock", "use_clock"):
            await connection.execute(_SQL[name].sql)


async def set_to(database: Database, at: datetime) -> None:
    await database.fetch(_SQL["set_clock"], at=at)
