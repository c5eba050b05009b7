"""How we speak to a server, whatever its settings."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from retoma import Settings
from retoma.store.database import Connection, Database, answered
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


ODD = {
    "default_transaction_isolation": "repeatable read",
    "default_transaction_read_only": "on",
    "statement_timeout": "1min",
    "lock_timeout": "1min",
    "search_path": "nowhere",
    "timezone": "Asia/Kathmandu",
    "datestyle": "German, DMY",
    "intervalstyle": "iso_8601",
    "synchronous_commit": "off",
}
NEEDED = {
    "transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "search_path": "public",
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "synchronous_commit": "on",
}


@pytest.fixture
async def odd() -> AsyncIterator[Database]:
    """A database whose administrator has set everything otherwise than we need it."""
    async with fresh_database() as made:
        async with made.connection() as connection:
            name = made.address.rpartition("/")[2]
            for setting, value in ODD.items():
                await connection.execute(f"alter database \"{name}\" set {setting} = '{value}'")
        async with await Database.open(Settings(database_url=made.url)) as opened:
            yield opened


async def shown(connection: Connection) -> dict[str, str]:
    return {name: await connection.fetchval(f"show {name}") for name in NEEDED}


async def test_connections_set_what_they_need(odd: Database) -> None:
    async with odd.connection() as connection:
        assert await shown(connection) == NEEDED
    own = await odd.connect()
    assert await shown(own) == NEEDED
    await own.close()


async def test_transactions_set_it_behind_a_pooler(odd: Database) -> None:
    odd.pooled = True
    async with odd.connection() as connection:
        assert not (await shown(connection)).items() & NEEDED.items()
        assert await answered(connection, odd.pooled, shown) == NEEDED


async def test_the_schema_is_upgraded_whatever_is_set(odd: Database) -> None:
    assert await odd.upgrade() == []
