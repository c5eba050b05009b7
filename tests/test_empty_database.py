"""No test sees what another one left in the database that they share."""

from __future__ import annotations

from retoma.store.database import Database
from tests.conftest import EMPTIED_TABLES

CLOCK_OF_TESTS = "clock"  # there once a test has set the time
KEPT_TABLES = {
    "audit_log": "truncated: its rows cannot be deleted",
    "metric_cursor": "reset",
    "retention_progress": "reset",
    "functions": "describes the schema",
    "migrations": "describes the schema",
    "signing_keys": "random, and no test expects a certain one",
    "trace_cursor": "reset",
    "transitions": "describes the schema",
}


async def test_every_table_is_emptied_between_tests_or_says_why_not(database: Database) -> None:
    async with database.connection() as connection:
        tables = await connection.fetch(
            "select relname from pg_class where relnamespace = 'retoma'::regnamespace and relkind in ('r', 'p')"
        )
    found = {row["relname"] for row in tables} - {CLOCK_OF_TESTS}
    assert sorted(found) == sorted([*EMPTIED_TABLES, *KEPT_TABLES])
