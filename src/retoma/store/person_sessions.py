"""Sessions of people in the database: only the digests of their tokens are stored."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from retoma.records import PersonSession
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("person_sessions")
IDLE_TIMEOUT = timedelta(hours=12)
MAX_SESSION_AGE = timedelta(days=7)
_LIMITS = {"idle": IDLE_TIMEOUT, "longest": MAX_SESSION_AGE}


async def add_session(
    database: Database, digest: bytes, person: int, *, address: str | None, user_agent: str | None
) -> None:
    values = {"digest": digest, "person": person, "address": address, "user_agent": user_agent}
    await database.fetch(_SQL["add_session"], **values, **_LIMITS)


async def use_session(database: Database, digest: bytes) -> int | None:
    """Return the number of the person whose session it is, if it is active, and record its use."""
    found: int | None = await database.find_value(_SQL["use_session"], digest=digest, **_LIMITS)
    return found


async def find_live(database: Database, digests: Iterable[bytes]) -> dict[bytes, int]:
    """Return the person of each digest whose session is active. This does not count as using it."""
    rows = await database.fetch(_SQL["list_live_sessions"], digests=list(digests), **_LIMITS)
    return {row["digest"]: row["person"] for row in rows}


async def list_sessions(database: Database, person: int, current: bytes | None = None) -> list[PersonSession]:
    """Return the active sessions of a person, the last used first; `current` is the digest of the caller's own."""
    rows = await database.fetch(_SQL["list_sessions_of"], person=person, **_LIMITS)
    return [
        PersonSession(
            row["id"], row["address"], row["user_agent"], row["created_at"], row["used_at"], row["digest"] == current
        )
        for row in rows
    ]


async def end_session(database: Database, digest: bytes) -> None:
    await database.fetch(_SQL["end_session"], digest=digest)


async def end_sessions(
    database: Database,
    person: int,
    *,
    id: int | None = None,  # noqa: A002
    kept: bytes | None = None,
) -> int:
    """End one session of a person, or all except the one with the digest `kept`; return how many ended."""
    return len(await database.fetch(_SQL["end_sessions_of"], person=person, id=id, kept=kept))
