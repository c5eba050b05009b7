"""Load a backup into a database, and make the database safe to work on: the world outside is newer than it is.

    load_dump                one transaction: drop what is there, load the dump, create the table `unfinished_restore`
    finish                   one transaction: drop that table, upgrade the schema, end leases, hold the outbox

As long as the table is there, no process of Retoma accepts the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import IO, Literal
from uuid import UUID

from retoma.errors import BackupFailed, Conflict
from retoma.store import audit_log, backups, migrate, postgres_programs, servers, workers
from retoma.store.database import Connection, Database
from retoma.store.statements import statements

Outbox = Literal["hold", "send", "drop"]
_SQL = statements("restores")
_DROP = "drop schema if exists retoma cascade;"
_MARK = f"create table retoma.{migrate.UNFINISHED_RESTORE} ();"


@dataclass(frozen=True)
class Origin:
    """The backup that a database is restored from. `outbox` is what becomes of webhooks and notifications that were
    due when it was taken."""

    backup: UUID
    taken_at: datetime
    outbox: Outbox


@dataclass(frozen=True)
class Restored:
    """The jobs that were released because their workers are those of the old machine, and the webhooks and
    notifications that are held, or were dropped."""

    jobs: int = 0
    held: int = 0
    dropped: int = 0


@dataclass(frozen=True)
class Held:
    webhooks: int
    notifications: int

    @property
    def total(self) -> int:
        return self.webhooks + self.notifications


async def describe_content(database: Database) -> str | None:
    """Return what a restore would replace, or None if the database has no tables of Retoma."""
    if not await database.fetch_value(_SQL["has_schema"]):
        return None
    async with database.connection() as connection:
        status = await migrate.get_status(connection)
        if status.is_unfinished or not status.applied:
            return "an unfinished restore"
        (row,) = await connection.fetch(_SQL["describe_content"].sql)
    last = f", the last one started at {row['last_start']:%Y-%m-%d %H:%M} UTC" if row["last_start"] else ""
    return f"{row['runs']} runs ({row['open_runs']} of them open{last}) and {row['open_reviews']} open reviews"


async def refuse_if_in_use(database: Database, heartbeat_timeout: timedelta, action: str) -> None:
    """Raise Conflict if workers or servers use the database."""
    async with database.connection() as connection:
        status = await migrate.get_status(connection)
    if not status.is_current:  # then nothing of this release runs on it
        return
    alive = [each.name for each in await workers.list_alive(database) if each.is_alive(heartbeat_timeout)]
    running = await servers.list_running(database)
    if alive or running:
        names = ", ".join([f"worker {name}" for name in alive] + [f"{len(running)} servers"] * bool(running))
        raise Conflict(f"the database at {database.address} is in use by {names}: stop them, then {action} again")


async def load(database: Database, dump: IO[bytes], rows: Mapping[str, int]) -> None:
    """Replace the schema by that of the dump, and check the number of rows of each table.

    No process accepts the database until `finish`.
    """
    async with database.connection() as connection:
        version = int(str(await connection.fetchval("show server_version_num"))) // 10_000
    programs = postgres_programs.choose_programs(version)
    await asyncio.to_thread(postgres_programs.load_dump, programs, database.url, dump, _DROP, _MARK)
    async with database.connection() as connection:
        found = await backups.count_rows(connection)
    if different := backups.compare_rows(rows, found):
        raise BackupFailed(f"the database is not the one that was backed up: {'; '.join(different)}")


async def finish(database: Database, origin: Origin | None, entry: audit_log.PendingEntry) -> Restored:
    """Upgrade the schema and let processes use the database. `origin` is None if the database only moved: then nothing
    has happened elsewhere in the meantime."""
    async with database.connection() as connection, connection.transaction():
        await connection.execute(_SQL["end_unfinished_restore"].sql)
        await migrate.upgrade(connection)
        restored = Restored() if origin is None else await _begin_restored_state(connection, origin)
        await entry.write(connection, [])
    async with database.connection() as connection:
        await connection.execute(_SQL["analyze"].sql)  # a dump has no statistics
    return restored


async def _begin_restored_state(connection: Connection, origin: Origin) -> Restored:
    statement = _SQL["begin_restored_state"]
    (row,) = await connection.fetch(statement.sql, *statement.bind(vars(origin)))
    return Restored(**row)


async def count_held(database: Database) -> Held:
    return Held(**await database.fetch_one(_SQL["count_held"]))


async def release_held(database: Database) -> int:
    """Let senders send what a restore held back. Return how many webhooks and notifications there were."""
    return int(await database.fetch_value(_SQL["release_held"]) or 0)


async def drop_held(database: Database) -> int:
    """End what a restore held back without sending it. Webhooks become dead letters. Return how many there were."""
    return int(await database.fetch_value(_SQL["drop_held"]) or 0)
