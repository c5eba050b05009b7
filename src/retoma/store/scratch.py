"""Databases that live for one test."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from getpass import getuser
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from retoma.settings import Settings
from retoma.store import embedded
from retoma.store.database import Database

# What a test loses with the machine's power it makes again.
_QUICK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@asynccontextmanager
async def fresh_database() -> AsyncIterator[Database]:
    """A database of its own with Retoma's schema, dropped afterwards.

    It is made on the server of RETOMA_TEST_DATABASE_URL, or on an embedded one that all tests of this user share.
    """
    async with _server() as url:
        name = f"retoma_test_{uuid4().hex[:12]}"
        await _execute(url, f'create database "{name}"')
        try:
            settings = Settings(database_url=urlunsplit(urlsplit(url)._replace(path=f"/{name}")))
            async with await Database.open(settings) as database:
                await database.upgrade()
                yield database
        finally:
            await _execute(url, f'drop database "{name}" with (force)')


@asynccontextmanager
async def _server() -> AsyncIterator[str]:
    if url := os.environ.get("RETOMA_TEST_DATABASE_URL"):
        yield url
        return
    home = Path(tempfile.gettempdir()) / f"retoma-tests-{getuser()}"
    server = await asyncio.to_thread(embedded.attach, home, None, _QUICK)
    try:
        yield server.url
    finally:
        server.close()


async def _execute(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()
