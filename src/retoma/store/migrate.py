"""Upgrade the schema `retoma` to this release: each numbered file once, server-side functions whenever they changed."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from retoma.errors import SchemaMismatch

if TYPE_CHECKING:
    from retoma.store.database import Connection

_STORE = files("retoma.store")
RELEASE = version("retoma")
_PRERELEASE_SCHEMA = "0001_core"  # the first migration of the development versions before the first release
_LOCK = 7_361_726_001  # the advisory lock of migrations
UNFINISHED_RESTORE = "unfinished_restore"  # the table that a restore creates first and drops last
LOCK_TIMEOUT = "2s"  # for a lock on a table: other statements on that table queue behind ours


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
    """The last migration in the database, and the release of its functions. `newest` is the last one of this release.

    `is_prerelease` means that a development version before the first release created the schema, `is_unfinished` that
    a backup is being restored, or that its restore was interrupted.
    """

    applied: int
    newest: int
    functions_of: str | None
    functions_are_ours: bool
    is_prerelease: bool = False
    is_unfinished: bool = False

    @property
    def is_newer(self) -> bool:
        return is_newer(self.applied, self.functions_of)

    @property
    def is_current(self) -> bool:
        """Return whether this release can use the schema. Functions of the next release stay callable by this one."""
        is_same = self.applied == self.newest and not self.is_prerelease and not self.is_unfinished
        return is_same and (self.functions_are_ours or self.is_newer)


def is_newer(schema: int, release: str | None) -> bool:
    """Return whether a schema, with the functions of a release, is newer than this release."""
    return schema > list_migrations()[-1].number or _parse_release(release) > _parse_release(RELEASE)


def get_schema_digest() -> str:
    """Return a digest of all that `upgrade` applies to an empty database."""
    checksums = "".join(migration.checksum for migration in list_migrations())
    return hashlib.sha256(f"{checksums}{_functions_digest()}{RELEASE}".encode()).hexdigest()


def list_migrations() -> list[Migration]:
    """Return all migrations of this release, in order."""
    return [_read_migration(file) for file in _sql_files(_STORE / "migrations")]


async def upgrade(connection: Connection) -> list[str]:
    """Apply missing migrations in one transaction, and return their names.

    Functions of a newer release are kept, because they also serve this one; newer tables may not. Raise
    LockNotAvailableError if other transactions lock a table for too long.
    """
    async with connection.transaction():
        await connection.execute("set transaction isolation level read committed, read write")
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
        await connection.execute(_BOOKKEEPING)
        status = await get_status(connection)
        _refuse_unusable_schema(status)
        applied = await _apply_migrations(connection)
        return applied if status.is_newer else applied + await _apply_functions(connection)


async def get_status(connection: Connection) -> SchemaStatus:
    newest = list_migrations()[-1].number
    if not await connection.fetchval("select to_regclass('retoma.functions') is not null"):
        return SchemaStatus(applied=0, newest=newest, functions_of=None, functions_are_ours=False)
    applied = await connection.fetchval("select coalesce(max(number), 0) from retoma.migrations")
    first = await connection.fetchval("select name from retoma.migrations where number = 1")
    functions = await connection.fetchrow("select digest, release from retoma.functions")
    return SchemaStatus(
        applied=applied,
        newest=newest,
        functions_of=functions["release"] if functions else None,
        functions_are_ours=functions is not None and functions["digest"] == _functions_digest(),
        is_prerelease=first == _PRERELEASE_SCHEMA,
        is_unfinished=await connection.fetchval(f"select to_regclass('retoma.{UNFINISHED_RESTORE}') is not null"),
    )


async def require_current(connection: Connection) -> None:
    """Raise SchemaMismatch unless this release can work on the schema."""
    status = await get_status(connection)
    _refuse_unusable_schema(status)
    if status.applied == 0:
        raise SchemaMismatch("the database does not have Retoma's tables yet: run `retoma db upgrade`")
    if not status.is_current:
        raise SchemaMismatch(
            f"the database has schema {status.applied} with functions of release {status.functions_of or 'none'}, "
            f"but this is release {RELEASE} with schema {status.newest}: run `retoma db upgrade`"
        )


def _refuse_unusable_schema(status: SchemaStatus) -> None:
    if status.is_unfinished:
        raise SchemaMismatch(
            "a backup is being restored into this database, or its restore was interrupted: wait for it, or restore "
            "again with `retoma restore BACKUP --replace`"
        )
    if status.is_prerelease:
        raise SchemaMismatch(
            "the database was created by a development version of Retoma before the first release, and cannot be "
            "upgraded: create a new database, or drop the schema `retoma`, which deletes all its runs"
        )
    if status.applied > status.newest:
        raise SchemaMismatch(
            f"the database has schema {status.applied}, newer than the {status.newest} of release {RELEASE}: "
            "upgrade Retoma on this machine"
        )


def _parse_release(release: str | None) -> tuple[list[int], float]:
    """Return a release as comparable numbers: `0.2.0rc1` is before `0.2.0rc2`, and both are before `0.2.0`."""
    [(numbers, candidate)] = re.findall(r"^([\d.]*)(?:rc(\d+))?", release or "")
    return [int(part) for part in re.findall(r"\d+", numbers)], float(candidate or "inf")


_BOOKKEEPING = """
create schema if not exists retoma;
create table if not exists retoma.migrations (
  number int primary key, name text not null, checksum text not null, applied_at timestamptz not null default now());
create table if not exists retoma.functions (digest text not null, release text not null);
"""


async def _apply_migrations(connection: Connection) -> list[str]:
    known = {row["number"]: row["checksum"] for row in await connection.fetch("select * from retoma.migrations")}
    applied = []
    for migration in list_migrations():
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
    # Bodies may refer to functions of a later file.
    await connection.execute("set local check_function_bodies = off")
    for file in _function_files():
        await connection.execute(file.read_text(encoding="utf-8"))
    await connection.execute("delete from retoma.functions")
    await connection.execute("insert into retoma.functions (digest, release) values ($1, $2)", digest, RELEASE)
    return ["functions"]


def _functions_digest() -> str:
    return hashlib.sha256("".join(file.read_text(encoding="utf-8") for file in _function_files()).encode()).hexdigest()


def _function_files() -> list[Traversable]:
    """Return the files of the functions, and last that of their settings, which a replaced function has lost."""
    found = _sql_files(_STORE / "sql" / "functions")
    return sorted(found, key=lambda file: file.name == "planner_settings.sql")


def _sql_files(folder: Traversable) -> list[Traversable]:
    return sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)


def _read_migration(file: Traversable) -> Migration:
    number, _, _ = file.name.partition("_")
    return Migration(int(number), file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
