"""The schema: brought to this release, kept from older ones, and refused where this release cannot work on it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from importlib.resources import files
from itertools import repeat

import pytest

from retoma import App, Context, Pipeline, PollResult, Retry, seconds
from retoma.errors import DatabaseUnavailable, SchemaMismatch
from retoma.store import database as store_database
from retoma.store import migrate
from retoma.store.database import Database
from retoma.testing import fresh_database, sandbox
from tests.wait_timeout import WAIT_TIMEOUT

PLANNER_SETTINGS = (
    "select proname, proconfig from pg_proc "
    "where pronamespace = 'retoma'::regnamespace and proconfig is not null order by proname"
)

PLPGSQL_FUNCTIONS = (
    "select p.proname from pg_proc p join pg_language l on l.oid = p.prolang "
    "where p.pronamespace = 'retoma'::regnamespace and l.lanname = 'plpgsql'"
)


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    """A separate database, since these tests leave it unusable."""
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


async def test_replaced_functions_keep_their_planner_settings(database: Database) -> None:
    async with database.connection() as connection:
        before = await connection.fetch(PLANNER_SETTINGS)
        await connection.execute("update retoma.functions set digest = 'of last week'")
        await database.upgrade()
        assert await connection.fetch(PLANNER_SETTINGS) == before
    assert {"finish_and_claim", "start_runs", "claim_deliveries", "jobs_by_queue"} <= {row["proname"] for row in before}


async def test_an_upgrade_rebuilds_the_triggers_of_changed_transitions_only(database: Database) -> None:
    await execute(
        database,
        "delete from retoma.transitions where entity = 'job' and to_state = 'skipped';"
        "insert into retoma.transitions values ('delivery', 'delivered', 'due');"
        "update retoma.functions set digest = 'of last week'",
    )
    await database.upgrade()
    async with database.connection() as connection:
        difference = await connection.fetch(
            "(select * from retoma.permitted_transitions() except table retoma.transitions)"
            "union all (table retoma.transitions except select * from retoma.permitted_transitions())"
        )
        rebuilt = await connection.fetch(
            "select c.relname from pg_trigger t join pg_class c on c.oid = t.tgrelid"
            " where tgname = 'only_permitted_transitions' and pg_get_triggerdef(t.oid) like '%::text%' order by 1"
        )
    assert difference == []
    assert [row[0] for row in rebuilt] == ["deliveries", "jobs"]


async def test_every_function_that_a_statement_calls_has_planner_settings(database: Database) -> None:
    """Only PL/pgSQL functions, because the others are inlined; and besides them no inner function, except two."""
    statements = "".join(file.read_text() for file in migrate._sql_files(files("retoma.store") / "sql"))
    called = set(re.findall(r"retoma\.(\w+)\(", statements))
    async with database.connection() as connection:
        settings = {row["proname"] for row in await connection.fetch(PLANNER_SETTINGS)}
        plpgsql = {row["proname"] for row in await connection.fetch(PLPGSQL_FUNCTIONS)}
    assert called & plpgsql - settings == set()
    assert settings - called == {"add_run_webhooks", "process_due_reviews"}


def test_planner_settings_are_in_one_file() -> None:
    having = {file.name for file in migrate._function_files() if re.search("enable_|plan_cache_mode", file.read_text())}
    assert having == {"planner_settings.sql"}


NEWER_RELEASES = [("0.1.0", "99.0.0"), ("0.1.0rc1", "0.1.0rc2"), ("0.1.0rc9", "0.1.0rc10"), ("0.1.0rc2", "0.1.0")]


@pytest.mark.parametrize(("ours", "theirs"), NEWER_RELEASES)
async def test_an_older_release_leaves_the_functions_of_a_newer_one_and_works_with_them(
    database: Database, monkeypatch: pytest.MonkeyPatch, ours: str, theirs: str
) -> None:
    monkeypatch.setattr(migrate, "RELEASE", ours)
    await execute(database, f"update retoma.functions set digest = 'of next year', release = '{theirs}'")
    assert await database.upgrade() == []
    await database.require_current()


@pytest.mark.parametrize(("theirs", "ours"), NEWER_RELEASES)
async def test_a_newer_release_replaces_the_functions_of_an_older_one(
    database: Database, monkeypatch: pytest.MonkeyPatch, ours: str, theirs: str
) -> None:
    monkeypatch.setattr(migrate, "RELEASE", ours)
    await execute(database, f"update retoma.functions set digest = 'of last year', release = '{theirs}'")
    with pytest.raises(SchemaMismatch, match="run `retoma db upgrade`"):
        await database.require_current()
    assert await database.upgrade() == ["functions"]


async def test_an_older_release_refuses_the_tables_of_a_newer_one(database: Database) -> None:
    await execute(database, "insert into retoma.migrations (number, name, checksum) values (9999, 'later', '')")
    for attempt in (database.upgrade, database.require_current):
        with pytest.raises(SchemaMismatch, match=r"has schema 9999, newer than .*: upgrade Retoma on this machine"):
            await attempt()


async def test_a_migration_that_was_changed_after_it_was_applied_is_refused(database: Database) -> None:
    await execute(database, "update retoma.migrations set checksum = 'another'")
    with pytest.raises(SchemaMismatch, match="0001_initial_schema was changed after it was applied"):
        await database.upgrade()


async def test_an_empty_database_error_says_how_to_create_the_schema(database: Database) -> None:
    await execute(database, "drop schema retoma cascade")
    with pytest.raises(SchemaMismatch, match="run `retoma db upgrade`"):
        await database.require_current()
    assert (await database.upgrade())[-1] == "functions"


async def test_a_database_of_a_version_before_the_first_release_is_refused(database: Database) -> None:
    await execute(
        database,
        "update retoma.migrations set name = '0001_core', checksum = 'another';"
        "insert into retoma.migrations (number, name, checksum) "
        "select max(number) + 1, 'last', '' from retoma.migrations",
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


async def test_the_second_of_two_concurrent_upgrades_finds_nothing_to_do(database: Database) -> None:
    await execute(database, "drop schema retoma cascade")
    async with database.connection() as first, database.connection() as second:
        applied = [await migrate.upgrade(first), await migrate.upgrade(second)]
    names = [migration.name for migration in migrate.list_migrations()]
    assert applied == [[*names, "functions"], []]


@pytest.fixture
def another_migration(database: Database, monkeypatch: pytest.MonkeyPatch) -> migrate.Migration:
    """Of a later release; nobody waits long for a lock."""
    known = migrate.list_migrations()
    later = migrate.Migration(known[-1].number + 1, "later", "alter table retoma.runs add later int")
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
async def test_work_continues_while_an_upgrade_waits_for_a_long_transaction(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = asyncio.Event()

    def pauses(**_: object) -> Iterator[float]:
        yield 0.01
        refused.set()
        yield from repeat(0.01)

    monkeypatch.setattr(store_database, "backoff", pauses)
    pipeline = make_film()
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
async def test_an_upgrade_that_timed_out_names_the_transaction_to_end(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_database, "UPGRADE_ATTEMPTS", 1)
    async with database.connection() as reader, reader.transaction():
        await reader.fetch("select from retoma.runs")
        with pytest.raises(DatabaseUnavailable, match="other transactions lock its tables: end those that `retoma doc"):
            await database.upgrade()


@pytest.mark.usefixtures("another_migration")
async def test_external_work_submitted_before_an_upgrade_continues_after_it(database: Database) -> None:
    pipeline = make_film()
    async with sandbox(App("studio", pipelines=[pipeline]), database) as working:
        parked, waiting = [(await working.client.start(pipeline)).id for _ in range(2)]
        async with working.manual_worker() as worker:
            await worker.record_outcomes(await worker.attempt(await worker.claim(1)))
        assert await database.upgrade() == ["later"]
        await working.work()
        assert (
            await working.client.runs.get_results(parked)
            == await working.client.runs.get_results(waiting)
            == {"clip": "video"}
        )


def make_film() -> Pipeline:
    """The first submission fails and is repeated."""
    pipeline = Pipeline("film", retry=Retry(1, jitter=0))

    @pipeline.step
    async def clip(*, ctx: Context) -> str:
        submit = lambda: "again" if ctx.attempt > 1 else "first"  # noqa: E731
        return str(await ctx.external(submit, poll=status, poll_interval=seconds(5)))

    return pipeline


async def status(external_id: str) -> PollResult:
    return PollResult("succeeded", result="video") if external_id == "again" else PollResult("failed")
