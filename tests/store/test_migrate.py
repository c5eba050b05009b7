"""The schema: brought to this release, kept from older ones, and refused where this release cannot work on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import repeat

import pytest

from retoma import App, Context, Pipeline, PollResult, Retry, seconds
from retoma.errors import DatabaseUnavailable, SchemaMismatch
from retoma.store import database as store_database
from retoma.store import migrate
from retoma.store.database import Database
from retoma.testing import fresh_database, sandbox
from tests.wait_timeout import WAIT_TIMEOUT


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
        with pytest.raises(SchemaMismatch, match=r"has schema 9999, newer than .*: upgrade Retoma on this machine"):
            await attempt()


async def test_a_migration_that_was_changed_after_it_was_applied_is_refused(database: Database) -> None:
    await execute(database, "update retoma.migrations set checksum = 'another'")
    with pytest.raises(SchemaMismatch, match="0001_initial_schema was changed after it was applied"):
        await database.upgrade()


async def test_an_empty_database_says_how_to_begin(database: Database) -> None:
    await execute(database, "drop schema retoma cascade")
    with pytest.raises(SchemaMismatch, match="run `retoma db upgrade`"):
        await database.require_current()
    assert (await database.upgrade())[-1] == "functions"


async def test_a_database_of_a_version_before_the_first_release_is_refused(database: Database) -> None:
    await execute(
        database,
        "update retoma.migrations set name = '0001_core', checksum = 'another';"
        "insert into retoma.migrations (number, name, checksum) values (22, 'last', '')",
    )
    for attempt in (database.upgrade, database.require_current):
        with pytest.raises(
            SchemaMismatch, match=r"before the first release.*: create a new database, or drop the schema"
        ):
            await attempt()


def test_migrations_are_numbered_without_gaps() -> None:
    assert [migration.number for migration in migrate.list_migrations()] == list(
        range(1, len(migrate.list_migrations()) + 1)
    )


async def test_the_second_of_two_upgrades_at_once_finds_nothing_to_do(database: Database) -> None:
    await execute(database, "drop schema retoma cascade")
    async with database.connection() as first, database.connection() as second:
        applied = [await migrate.upgrade(first), await migrate.upgrade(second)]
    names = [migration.name for migration in migrate.list_migrations()]
    assert applied == [[*names, "functions"], []]


@pytest.fixture
def another_migration(database: Database, monkeypatch: pytest.MonkeyPatch) -> migrate.Migration:
    """Of a later release; nobody waits long for a lock."""
    known = migrate.list_migrations()
    later = migrate.Migration(len(known) + 1, "later", "alter table retoma.runs add later int")
    monkeypatch.setattr(migrate, "list_migrations", lambda: [*known, later])
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "50ms")
    return later


async def test_a_later_migration_is_applied_once(database: Database, another_migration: migrate.Migration) -> None:
    with pytest.raises(SchemaMismatch, match="run `retoma db upgrade`"):
        await database.require_current()
    assert await database.upgrade() == [another_migration.name]
    assert await database.upgrade() == []
    await database.require_current()
    await execute(database, "select later from retoma.runs")


@pytest.mark.usefixtures("another_migration")
async def test_work_goes_on_while_an_upgrade_waits_for_a_long_transaction(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = asyncio.Event()

    def pauses(**_: object) -> Iterator[float]:
        yield 0.01
        refused.set()
        yield from repeat(0.01)

    monkeypatch.setattr(store_database, "backoff", pauses)
    pipeline = a_film()
    async with sandbox(App("studio", pipelines=[pipeline]), database) as working, database.connection() as reader:
        await working.client.start(pipeline)
        async with reader.transaction(), asyncio.timeout(WAIT_TIMEOUT):
            await reader.fetch("select from retoma.runs")
            upgrading = asyncio.create_task(database.upgrade())
            await refused.wait()
            assert (await working.client.start(pipeline)).created
            assert not upgrading.done()
        assert await upgrading == ["later"]


@pytest.mark.usefixtures("another_migration")
async def test_an_upgrade_that_waited_in_vain_says_what_to_end(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_database, "UPGRADE_ATTEMPTS", 1)
    async with database.connection() as reader, reader.transaction():
        await reader.fetch("select from retoma.runs")
        with pytest.raises(DatabaseUnavailable, match="other transactions lock its tables: end those that `retoma doc"):
            await database.upgrade()


@pytest.mark.usefixtures("another_migration")
async def test_external_work_submitted_before_an_upgrade_continues_after_it(database: Database) -> None:
    pipeline = a_film()
    async with sandbox(App("studio", pipelines=[pipeline]), database) as working:
        parked, waiting = [(await working.client.start(pipeline)).id for _ in range(2)]
        async with working.manual_worker() as hands:
            await hands.record_outcomes(await hands.attempt(await hands.claim(1)))
        assert await database.upgrade() == ["later"]
        await working.work()
        assert (
            await working.client.runs.get_results(parked)
            == await working.client.runs.get_results(waiting)
            == {"clip": "video"}
        )


def a_film() -> Pipeline:
    """Whatever was submitted first fails, and is submitted anew."""
    pipeline = Pipeline("film", retry=Retry(1, jitter=0))

    @pipeline.step
    async def clip(*, ctx: Context) -> str:
        handle = await ctx.once("submit", lambda: "again" if ctx.attempt > 1 else "first")
        return str(await ctx.external(handle, poll=status, poll_interval=seconds(5)))

    return pipeline


async def status(external_id: str) -> PollResult:
    return PollResult("succeeded", result="video") if external_id == "again" else PollResult("failed")
