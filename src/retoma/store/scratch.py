"""Databases that live for one test."""

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

# What a test loses with the machine's power it makes again.
_FAST_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class ScratchDatabase(Database):
    """Keeps the connections of its loop for the next that asks: most of what a short test costs are plans made anew."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
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
    """A database of its own with Retoma's schema, dropped afterwards.

    It is made on the server of RETOMA_TEST_DATABASE_URL, or on an embedded one that all tests of this user share.
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

    Only a superuser may end an autovacuum worker by force; an ordinary DROP sends it away and waits for it.
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
