"""The PostgreSQL server for all measurements, with a new database for each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from retoma import Settings
from retoma.store import embedded
from retoma.store.database import Database
from retoma.store.test_databases import drop_database

ROOT = Path(__file__).parents[1]
BENCH_FOLDER = ROOT / ".bench"  # if a measurement left connections open
SAFE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
# Loaded for --profile, which enables it for its own databases only.
WATCHED = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "none"}


class Server:
    """Creates databases on the server of `url`, whose role needs that privilege."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._template: str | None = None

    @asynccontextmanager
    async def empty(self) -> AsyncIterator[str]:
        """Return the address of a new, empty database."""
        async with self._create_database("template0") as name:
            yield self.address(name)

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[str]:
        """Return the address of a new database with Retoma's schema."""
        if self._template is None:
            self._template = await self._make_template()
        async with self._create_database(self._template) as name:
            yield self.address(name)

    async def close(self) -> None:
        if self._template is not None:
            await drop_database(self.url, self._template)
            self._template = None

    async def execute(self, sql: str) -> None:
        async with self.connection() as connection:
            await connection.execute(sql)

    @asynccontextmanager
    async def connection(self, url: str | None = None) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(url or self.url)
        try:
            yield connection
        finally:
            await connection.close()

    async def settings(self) -> dict[str, str]:
        names = [*SAFE, "server_version", "shared_buffers", "max_wal_size", "checkpoint_timeout"]
        async with self.connection() as connection:
            return {name: await connection.fetchval("select current_setting($1)", name) for name in names}

    def address(self, name: str) -> str:
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    @asynccontextmanager
    async def _create_database(self, template: str) -> AsyncIterator[str]:
        name = f"bench_{uuid4().hex[:12]}"
        await self.execute(f'create database "{name}" template "{template}"')
        try:
            yield name
        finally:
            await drop_database(self.url, name)

    async def _make_template(self) -> str:
        name = f"bench_{uuid4().hex[:12]}"
        await self.execute(f'create database "{name}"')
        async with await Database.open(Settings(database_url=self.address(name))) as database:
            await database.upgrade()
        return name


@asynccontextmanager
async def open_server(folder: str = "server") -> AsyncIterator[Server]:
    """Open BENCH_DATABASE_URL, or an embedded server that syncs every commit to disk."""
    if url := os.environ.get("BENCH_DATABASE_URL"):
        yield await _check_durability(Server(url))
        return
    attached = await asyncio.to_thread(embedded.attach, BENCH_FOLDER / folder, None, SAFE | WATCHED)
    try:
        yield await _check_durability(Server(attached.url))
    finally:
        attached.close()


async def _check_durability(server: Server) -> Server:
    found = await server.settings()
    if unsafe := {name: found[name] for name, value in SAFE.items() if found[name] != value}:
        raise SystemExit(f"figures from a server that may lose commits mean nothing: {unsafe}")
    return server


def programs() -> Path:
    """Return the folder of psql, for engines that need it."""
    return embedded.find_programs()
