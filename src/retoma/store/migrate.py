"""Bring the schema `retoma` to this release: numbered files once each, server-side functions whenever they changed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from retoma.errors import SchemaMismatch

if TYPE_CHECKING:
    from retoma.store.database import Connection

_STORE = files("retoma.store")
_LOCK = 7_361_726_001  # the advisory lock that only migrations take


@dataclass(frozen=True)
class Migration:
    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True)
class SchemaStatus:
    applied: int
    newest: int
    functions_current: bool

    @property
    def is_current(self) -> bool:
        return self.applied == self.newest and self.functions_current


def migrations() -> list[Migration]:
    """All migrations of this release, in order."""
    return [_migration(file) for file in _sql_files(_STORE / "migrations")]


async def upgrade(connection: Connection) -> list[str]:
    """Apply what is missing, in one transaction; gives the names of what was applied."""
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(_BOOKS)
        return await _apply_migrations(connection) + await _apply_functions(connection)


async def status(connection: Connection) -> SchemaStatus:
    newest = migrations()[-1].number
    if not await connection.fetchval("select to_regclass('retoma.migrations') is not null"):
        return SchemaStatus(applied=0, newest=newest, functions_current=False)
    applied = await connection.fetchval("select coalesce(max(number), 0) from retoma.migrations")
    digest = await connection.fetchval("select digest from retoma.functions")
    return SchemaStatus(applied=applied, newest=newest, functions_current=digest == _functions_digest())


async def require_current(connection: Connection) -> None:
    """Raise SchemaMismatch unless the schema is of this release."""
    found = await status(connection)
    if found.applied > found.newest:
        raise SchemaMismatch(
            f"the database is at schema {found.applied}, newer than this release's {found.newest}: upgrade Retoma here"
        )
    if not found.is_current:
        raise SchemaMismatch(
            f"the database is at schema {found.applied} and this release needs {found.newest}: run `retoma db upgrade`"
        )


_BOOKS = """
create schema if not exists retoma;
create table if not exists retoma.migrations (
  number int primary key, name text not null, checksum text not null, applied_at timestamptz not null default now());
create table if not exists retoma.functions (digest text not null);
"""


async def _apply_migrations(connection: Connection) -> list[str]:
    known = {row["number"]: row["checksum"] for row in await connection.fetch("select * from retoma.migrations")}
    applied = []
    for migration in migrations():
        if migration.number not in known:
            await connection.execute(migration.sql)
            await connection.execute(
                "insert into retoma.migrations (number, name, checksum) values ($1, $2, $3)",
                migration.number,
                migration.name,
                migration.checksum,
            )
            applied.append(migration.name)
        elif known[migration.number] != migration.checksum:
            raise SchemaMismatch(
                f"migration {migration.name} was changed after it was applied here: restore the release that applied it"
            )
    return applied


async def _apply_functions(connection: Connection) -> list[str]:
    digest = _functions_digest()
    if await connection.fetchval("select digest from retoma.functions") == digest:
        return []
    # Bodies may name functions of a later file.
    await connection.execute("set local check_function_bodies = off")
    for file in _function_files():
        await connection.execute(file.read_text())
    await connection.execute("delete from retoma.functions")
    await connection.execute("insert into retoma.functions (digest) values ($1)", digest)
    return ["functions"]


def _functions_digest() -> str:
    return hashlib.sha256("".join(file.read_text() for file in _function_files()).encode()).hexdigest()


def _function_files() -> list[Traversable]:
    return _sql_files(_STORE / "sql" / "functions")


def _sql_files(folder: Traversable) -> list[Traversable]:
    return sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)


def _migration(file: Traversable) -> Migration:
    number, _, _ = file.name.partition("_")
    return Migration(int(number), file.name.removesuffix(".sql"), file.read_text())
