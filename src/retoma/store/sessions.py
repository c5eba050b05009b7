"""Sessions of people in the database: only the digests of their tokens are stored."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("sessions")
IDLE_TIMEOUT = timedelta(hours=12)
MAX_SESSION_AGE = timedelta(days=7)
_LIMITS = {"idle": IDLE_TIMEOUT, "longest": MAX_SESSION_AGE}


async def add_session(database: Database, digest: bytes, password: bytes) -> None:
    await database.fetch(_SQL["add_session"], digest=digest, password=password, **_LIMITS)


async def use_session(database: Database, digest: bytes, password: bytes) -> bool:
    """Return whether the session is active, and record its use."""
    return await database.fetchrow(_SQL["use_session"], digest=digest, password=password, **_LIMITS) is not None


async def find_live(database: Database, digests: Iterable[bytes], password: bytes) -> set[bytes]:
    """Return the digests of active sessions."""
    live = _SQL["list_live_sessions"]
    return set(await database.fetch_column(live, digests=list(digests), password=password, **_LIMITS))


async def end_session(database: Database, digest: bytes) -> None:
    await database.fetch(_SQL["end_session"], digest=digest)
