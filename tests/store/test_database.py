"""How we speak to a server, whatever its settings."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from retoma import Settings
from retoma.store.database import Database, answered
from retoma.testing import fresh_database


@pytest.fixture
async def compiling() -> AsyncIterator[Database]:
    """A database whose server compiles statements unless it is told not to, as PostgreSQL does by default."""
    async with fresh_database() as made:
        async with made.connection() as connection:
            await connection.execute(f'alter database "{made.address.rpartition("/")[2]}" set jit = on')
        async with await Database.open(Settings(database_url=made.url)) as opened:
            yield opened


async def test_no_statement_of_ours_is_compiled(compiling: Database) -> None:
    async with compiling.connection() as connection:
        assert await connection.fetchval("show jit") == "off"
    own = await compiling.connect()
    assert await own.fetchval("show jit") == "off"
    await own.close()


async def test_nor_is_it_behind_a_pooler(compiling: Database) -> None:
    compiling.pooled = True
    async with compiling.connection() as connection:
        assert await connection.fetchval("show jit") == "on"
        assert await answered(connection, compiling.pooled, lambda one: one.fetchval("show jit")) == "off"
