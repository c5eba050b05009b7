"""What a backup reads from the database in one snapshot, and the record that it was taken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from retoma.errors import BackupFailed
from retoma.store import migrate
from retoma.store.database import DATABASE_ERRORS, Connection, Database
from retoma.store.migrate import SchemaStatus
from retoma.store.retention import FILE_GRACE
from retoma.store.statements import statements

_SQL = statements("backups")


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that other connections can use as long as this one keeps it."""

    connection: asyncpg.Connection
    name: str
    taken_at: datetime
    server_version: str

    @property
    def major_version(self) -> int:
        return int(self.server_version.partition(".")[0])

    async def get_size(self) -> int:
        return int(await self.connection.fetchval(_SQL["get_size"].sql))

    async def get_status(self) -> SchemaStatus:
        """Return the status of the schema. Raise BackupFailed if this release cannot back it up."""
        status = await migrate.get_status(self.connection)
        if not status.applied or status.is_unfinished or status.is_prerelease:
            raise BackupFailed("the database has no complete schema of Retoma, so there is nothing to back up")
        if status.is_newer:
            raise BackupFailed(
                f"the database is of Retoma {status.functions_of}, newer than {migrate.RELEASE}: use that"
            )
        return status

    async def count_rows(self) -> dict[str, int]:
        return await count_rows(self.connection)

    async def list_named_files(self) -> set[str]:
        """Return the SHA-256 of all files that rows name."""
        found = await self.connection.fetch(_SQL["list_named_files"].sql)
        if await self.connection.fetchval(_SQL["has_file_collection"].sql):
            found += await self.connection.fetch(_SQL["list_kept_files"].sql, FILE_GRACE)
        return {row["digest"] for row in found}


@asynccontextmanager
async def export_snapshot(database: Database) -> AsyncIterator[Snapshot]:
    refuse_pooler(database)
    connection = await database.connect()
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetch(_SQL["allow_long_transaction"].sql)
            (row,) = await connection.fetch(_SQL["export_snapshot"].sql)
            yield Snapshot(connection, row["snapshot"], row["taken_at"], row["server_version"])
    finally:
        await database.release_connection(connection)


@asynccontextmanager
async def keep_files(database: Database) -> AsyncIterator[None]:
    """Keep file collection from deleting files until the block ends. It may still set them aside."""
    refuse_pooler(database)
    connection = await database.connect()
    try:
        if await connection.fetchval(_SQL["has_file_collection"].sql):
            await connection.fetch(_SQL["keep_files"].sql)
        yield
    finally:
        with suppress(*DATABASE_ERRORS):
            await connection.fetch(_SQL["stop_keeping_files"].sql)
        await database.release_connection(connection)


def refuse_pooler(database: Database) -> None:
    if database.pooled:
        raise BackupFailed(
            f"{database.address} is a transaction pooler, through which no backup can be taken or restored: use the "
            "URL of the server itself for this command"
        )


async def count_rows(connection: Connection) -> dict[str, int]:
    """Return the number of rows of each table."""
    names = [row["relname"] for row in await connection.fetch(_SQL["list_tables"].sql)]
    return {name: await connection.fetchval(f'select count(*) from retoma."{name}"') for name in names}  # noqa: S608


async def record_backup(database: Database, backup: UUID, taken_at: datetime, bytes_: int, files: int) -> None:
    await database.fetch(_SQL["record_backup"], id=backup, taken_at=taken_at, bytes=bytes_, files=files)


async def get_last_backup(database: Database) -> tuple[datetime, timedelta] | None:
    """Return when the last backup was taken, and how long ago that was."""
    row = await database.fetchrow(_SQL["get_last_backup"])
    return None if row is None else (row["taken_at"], row["age"])


def compare_rows(expected: Mapping[str, int], found: Mapping[str, Any]) -> list[str]:
    """Return the tables whose number of rows differs, each with both numbers."""
    return [
        f"{name} has {found.get(name, 'no')} rows instead of {rows}"
        for name, rows in sorted(expected.items())
        if found.get(name) != rows
    ]
