"""The servers that are running, with the settings that workers must share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from retoma.records import Server
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("servers")
HEARTBEAT_TIMEOUT = timedelta(seconds=30)


async def send_heartbeat(database: Database, server: UUID, allow_hosts: Sequence[str], public_url: str | None) -> None:
    """Record that this server is running. It counts as running for `HEARTBEAT_TIMEOUT`, so repeat it."""
    await database.fetch(
        _SQL["send_server_heartbeat"], server=server, allow_hosts=sorted(set(allow_hosts)), public_url=public_url
    )


async def deregister_server(database: Database, server: UUID) -> None:
    await database.fetch(_SQL["deregister_server"], server=server)


async def list_running(database: Database) -> list[Server]:
    return await database.fetch_records(Server, _SQL["list_running_servers"], heartbeat_timeout=HEARTBEAT_TIMEOUT)


async def list_allowed_hosts(database: Database) -> list[str]:
    """Return the private hosts that any running server accepts in URLs."""
    return sorted({host for server in await list_running(database) for host in server.allow_hosts})
