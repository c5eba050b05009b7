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

# A test need not survive a power failure.
_FAST_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


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
        await _execute(url, f'create database "{name}"')
        try:
            settings = Settings(database_url=urlunsplit(urlsplit(url)._replace(path=f"/{name}")))
            async with await ScratchDatabase.open(settings) as database:
                await database.upgrade()
                yield database
        finally:
            await drop_database(url, name)


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
            return await _execute(url, f'drop database "{name}" with (force)')
        except asyncpg.InsufficientPrivilegeError:
            with suppress(asyncpg.ObjectInUseError):
                return await _execute(url, f'drop database "{name}"')


async def _execute(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()
