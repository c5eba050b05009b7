"""How we speak to a server, whatever its settings."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from retoma import Settings
from retoma.errors import DatabaseUnavailable
from retoma.store.database import Connection, Database, run_call
from retoma.testing import fresh_database


@pytest.fixture
async def compiling_database() -> AsyncIterator[Database]:
    """A database whose server JIT-compiles statements unless that is disabled, as PostgreSQL does by default."""
    async with fresh_database() as made:
        async with made.connection() as connection:
            await connection.execute(f'alter database "{made.address.rpartition("/")[2]}" set jit = on')
        async with await Database.open(Settings(database_url=made.url)) as opened:
            yield opened


async def test_none_of_our_statements_is_jit_compiled(compiling_database: Database) -> None:
    async with compiling_database.connection() as connection:
        assert await connection.fetchval("show jit") == "off"
    own = await compiling_database.connect()
    assert await own.fetchval("show jit") == "off"
    await own.close()


async def test_no_statement_is_jit_compiled_behind_a_pooler(compiling_database: Database) -> None:
    compiling_database.pooled = True
    async with compiling_database.connection() as connection:
        assert await connection.fetchval("show jit") == "on"
        assert await run_call(connection, compiling_database.pooled, lambda one: one.fetchval("show jit")) == "off"


UNUSUAL_SETTINGS = {
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
REQUIRED_SETTINGS = {
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
async def unusual_database() -> AsyncIterator[Database]:
    """A database whose administrator has set everything otherwise than we need it."""
    async with fresh_database() as made:
        async with made.connection() as connection:
            name = made.address.rpartition("/")[2]
            for setting, value in UNUSUAL_SETTINGS.items():
                await connection.execute(f"alter database \"{name}\" set {setting} = '{value}'")
        async with await Database.open(Settings(database_url=made.url)) as opened:
            yield opened


async def read_settings(connection: Connection) -> dict[str, str]:
    return {name: await connection.fetchval(f"show {name}") for name in REQUIRED_SETTINGS}


async def test_connections_set_their_required_settings(unusual_database: Database) -> None:
    async with unusual_database.connection() as connection:
        assert await read_settings(connection) == REQUIRED_SETTINGS
    own = await unusual_database.connect()
    assert await read_settings(own) == REQUIRED_SETTINGS
    await own.close()


async def test_transactions_set_the_required_settings_behind_a_pooler(unusual_database: Database) -> None:
    unusual_database.pooled = True
    async with unusual_database.connection() as connection:
        assert not (await read_settings(connection)).items() & REQUIRED_SETTINGS.items()
        assert await run_call(connection, unusual_database.pooled, read_settings) == REQUIRED_SETTINGS


async def test_the_schema_is_upgraded_with_any_settings(unusual_database: Database) -> None:
    assert await unusual_database.upgrade() == []


@pytest.mark.parametrize("password", ["secret/part", "secret#part", "secret?part", "a[secret]part"])
async def test_no_part_of_a_password_with_special_characters_is_in_the_error(password: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="special characters %-encoded") as caught:
        await Database.open(Settings(database_url=f"postgresql://me:{password}@127.0.0.1:1/none"))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
