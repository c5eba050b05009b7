"""Databases for single tests are copies of a template."""

from __future__ import annotations

from uuid import uuid4

import pytest

from retoma.store import migrate, test_databases
from retoma.store.database import Database
from retoma.testing import fresh_database

TEMPLATES = "select datname from pg_database where datname like $1"


@pytest.fixture
def prefix(monkeypatch: pytest.MonkeyPatch) -> str:
    """Keep the templates of these tests apart from those that other tests use."""
    monkeypatch.setattr(test_databases, "_TEMPLATE", prefix := f"retoma_{uuid4().hex[:12]}_")
    monkeypatch.setattr(test_databases, "_KEPT_TEMPLATES", 1)
    return prefix


async def test_only_the_first_database_of_a_schema_is_migrated(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    applied = []
    upgrade = migrate.upgrade

    async def note(connection: object) -> list[str]:
        applied.append(len(await upgrade(connection)))  # type: ignore[arg-type]
        return []

    monkeypatch.setattr(migrate, "upgrade", note)
    for _ in range(2):
        async with fresh_database() as database:
            await database.require_current()
    assert applied[0] > 0
    assert applied[1:] == [0, 0]
    await drop_template(prefix)


async def test_a_changed_schema_gets_a_template_of_its_own(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for digest in ("before", "after"):
        monkeypatch.setattr(test_databases, "get_schema_digest", lambda digest=digest: digest)
        async with fresh_database() as database:
            templates = await list_templates(database, prefix)
    assert templates == [f"{prefix}after"]
    await drop_template(prefix)


async def list_templates(database: Database, prefix: str) -> list[str]:
    async with database.connection() as connection:
        return [row["datname"] for row in await connection.fetch(TEMPLATES, f"{prefix}%")]


async def drop_template(prefix: str) -> None:
    async with fresh_database() as database, database.connection() as connection:
        for name in await list_templates(database, prefix):
            await connection.execute(f'alter database "{name}" is_template false')
            await connection.execute(f'drop database "{name}"')
