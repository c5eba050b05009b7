"""The administrator's password, and the sessions that it opens."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import timedelta

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from retoma.errors import InvalidInput
from retoma.store import sessions
from retoma.store.database import Database

IDLE = timedelta(hours=12)
LONGEST = timedelta(days=7)
SHORTEST_PASSWORD = 12
LONGEST_PASSWORD = 1_000


def hashed(password: str) -> str:
    """What RETOMA_ADMIN_PASSWORD_HASH is set to."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise InvalidInput(f"a password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD:,} characters")
    return PasswordHasher().hash(password)


def is_right(password: str, hashed: str) -> bool:
    """Takes some 50 ms and 64 MiB, on purpose: call it in a thread, and not too often."""
    if len(password) > LONGEST_PASSWORD:
        return False
    try:
        return PasswordHasher().verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False


async def opened(database: Database, hashed: str) -> str:
    """The token of a new session. It counts as long as this is the password's hash."""
    token = secrets.token_urlsafe(32)
    await sessions.add(database, digest(token), digest(hashed), IDLE, LONGEST)
    return token


async def is_live(database: Database, token: str, hashed: str) -> bool:
    return await sessions.use(database, digest(token), digest(hashed), IDLE, LONGEST)


async def find_live(database: Database, digests: Iterable[bytes], hashed: str) -> set[bytes]:
    """Return the digests of tokens whose sessions are live. This does not count as a use of them."""
    return await sessions.live(database, digests, digest(hashed), IDLE, LONGEST)


async def ended(database: Database, token: str) -> None:
    await sessions.end(database, digest(token))


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
