"""Sessions of people in the database: only the digests of their tokens are stored."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("sessions")


async def add_session(database: Database, digest: bytes, password: bytes, idle: timedelta, longest: timedelta) -> None:
    await database.fetch(_SQL["add_session"], digest=digest, password=password, idle=idle, longest=longest)


async def use_session(database: Database, digest: bytes, password: bytes, idle: timedelta, longest: timedelta) -> bool:
    """Return whether the session is active, and record its use."""
    row = await database.fetchrow(_SQL["use_session"], digest=digest, password=password, idle=idle, longest=longest)
    return row is not None


async def find_live(
    database: Database, digests: Iterable[bytes], password: bytes, idle: timedelta, longest: timedelta
) -> set[bytes]:
    """Return the digests of active sessions."""
    rows = await database.fetch(
        _SQL["list_live_sessions"], digests=list(digests), password=password, idle=idle, longest=longest
    )
    return {row["digest"] for row in rows}


async def end_session(database: Database, digest: bytes) -> None:
    await database.fetch(_SQL["end_session"], digest=digest)
