"""Databases for single tests."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from getpass import getuser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from retoma.define.isolation import check_not_importing
from retoma.settings import Settings
from retoma.store import embedded
from retoma.store.database import Database
from retoma.store.migrate import get_schema_digest

# A test need not survive a power failure.
_FAST_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_TEMPLATE = "retoma_template_"
_KEPT_TEMPLATES = 4
_OLD_TEMPLATES = """
    select datname from pg_database where datname like $1 and datdba = current_user::regrole order by oid desc offset $2
"""


class ScratchDatabase(Database):
    """Keeps its connections for the next test on the same loop: re-planning statements dominates a short test."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._loop = asyncio.get_running_loop()
        self._idle: list[asyncpg.Connection] = []

    async def connect(self) -> asyncpg.Connection:
        while self._idle and self._is_own_loop():
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await super().connect()

    async def release_connection(self, connection: asyncpg.Connection) -> None:
        if self._is_own_loop():
            self._idle.append(connection)
        else:
            await super().release_connection(connection)

    async def close(self) -> None:
        for connection in self._idle:
            await super().release_connection(connection)
        await super().close()

    def _is_own_loop(self) -> bool:
        return asyncio.get_running_loop() is self._loop


@asynccontextmanager
async def fresh_database() -> AsyncIterator[Database]:
    """Yield a new database with Retoma's schema, and drop it afterwards.

    It is on the server of RETOMA_TEST_DATABASE_URL, or on an embedded one that all tests of this user share.
    """
    check_not_importing()
    async with _server() as url:
        name = f"retoma_test_{uuid4().hex[:12]}"
        await _create_database(url, name)
        try:
            async with await _open(url, name) as database:
                await database.upgrade()
                yield database
        finally:
            await drop_database(url, name)


async def _create_database(url: str, name: str) -> None:
    """Copy the database that is the template of this schema, which is faster than the migrations.

    The first database of a schema becomes its template.
    """
    template = f"{_TEMPLATE}{get_schema_digest()[:12]}"
    if await _copy_database(url, template, name):
        return
    await _execute(url, f'create database "{name}"')
    async with await _open(url, name) as database:
        await database.upgrade()
    if await _copy_database(url, name, template, "is_template true allow_connections false"):
        await _drop_old_templates(url)


async def _copy_database(url: str, source: str, name: str, options: str = "") -> bool:
    """Return False if there is no such source, if connections to it are open, or if the copy already exists."""
    try:
        await _execute(url, f'create database "{name}" template "{source}" {options}')
    except (
        asyncpg.InvalidCatalogNameError,
        asyncpg.ObjectInUseError,
        asyncpg.DuplicateDatabaseError,
        asyncpg.UniqueViolationError,
    ):
        return False
    return True


async def _drop_old_templates(url: str) -> None:
    """Keep the newest, because tests of several versions of the code may use the same server."""
    for row in await _execute(url, _OLD_TEMPLATES, f"{_TEMPLATE}%", _KEPT_TEMPLATES):
        with suppress(asyncpg.InvalidCatalogNameError, asyncpg.ObjectInUseError):
            await _execute(url, f'alter database "{row["datname"]}" is_template false')
            await _execute(url, f'drop database "{row["datname"]}"')


async def _open(url: str, name: str) -> ScratchDatabase:
    return await ScratchDatabase.open(Settings(database_url=urlunsplit(urlsplit(url)._replace(path=f"/{name}"))))


@asynccontextmanager
async def _server() -> AsyncIterator[str]:
    if url := os.environ.get("RETOMA_TEST_DATABASE_URL"):
        yield url
        return
    home = Path(tempfile.gettempdir()) / f"retoma-tests-{getuser()}"
    server = await asyncio.to_thread(embedded.attach, home, None, _FAST_SETTINGS)
    try:
        yield server.url
    finally:
        server.close()


async def drop_database(url: str, name: str) -> None:
    """Drop a database with its connections.

    Only a superuser may terminate an autovacuum worker; an ordinary DROP asks it to stop and waits.
    """
    while True:
        try:
            await _execute(url, f'drop database "{name}" with (force)')
            return
        except asyncpg.InsufficientPrivilegeError:
            with suppress(asyncpg.ObjectInUseError):
                await _execute(url, f'drop database "{name}"')
                return


async def _execute(url: str, sql: str, *values: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        return await connection.fetch(sql, *values)
    finally:
        await connection.close()
