"""The schema: brought to this release, kept from older ones, and refused where this release cannot work on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from retoma.errors import SchemaMismatch
from retoma.store import migrate
from retoma.store.database import Database
from retoma.testing import fresh_database


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    """One of its own, since these tests leave it unusable."""
    async with fresh_database() as made:
        yield made


async def execute(database: Database, sql: str) -> None:
    async with database.connection() as connection:
        await connection.execute(sql)


async def test_an_upgrade_of_a_current_schema_applies_nothing(database: Database) -> None:
    assert await database.upgrade() == []
    await database.require_current()


async def test_changed_functions_are_replaced(database: Database) -> None:
    await execute(database, "update retoma.functions set digest = 'of last week'")
    with pytest.raises(SchemaMismatch, match="run `retoma db upgrade`"):
        await database.require_current()
    assert await database.upgrade() == ["functions"]
    await database.require_current()


async def test_an_older_release_leaves_the_functions_of_a_newer_one_and_works_with_them(database: Database) -> None:
    await execute(database, "update retoma.functions set digest = 'of next year', release = '99.0.0'")
    assert await database.upgrade() == []
    await database.require_current()


async def test_an_older_release_refuses_the_tables_of_a_newer_one(database: Database) -> None:
    await execute(database, "insert into retoma.migrations (number, name, checksum) values (9999, 'later', '')")
    for attempt in (database.upgrade, database.require_current):
        with pytest.raises(SchemaMismatch, match=r"at schema 9999, newer than .*: upgrade Retoma on this machine"):
            await attempt()


async def test_a_migration_that_was_changed_after_it_was_applied_is_refused(database: Database) -> None:
    await execute(database, "update retoma.migrations set checksum = 'another'")
    with pytest.raises(SchemaMismatch, match="0001_core was changed after it was applied"):
        await database.upgrade()


async def test_an_empty_database_says_how_to_begin(database: Database) -> None:
    await execute(database, "drop schema retoma cascade")
    with pytest.raises(SchemaMismatch, match="run `retoma db upgrade`"):
        await database.require_current()
    assert (await database.upgrade())[-1] == "functions"


def test_migrations_are_numbered_without_gaps() -> None:
    assert [migration.number for migration in migrate.migrations()] == list(range(1, len(migrate.migrations()) + 1))


async def test_the_second_of_two_upgrades_at_once_finds_nothing_to_do(database: Database) -> None:
    await execute(database, "drop schema retoma cascade")
    async with database.connection() as first, database.connection() as second:
        applied = [await migrate.upgrade(first), await migrate.upgrade(second)]
    names = [migration.name for migration in migrate.migrations()]
    assert applied == [[*names, "functions"], []]
