"""The administrator's password, and the sessions that it opens."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from retoma.engine.api_keys import hash_secret
from retoma.errors import InvalidInput
from retoma.store import sessions
from retoma.store.database import Database

MIN_PASSWORD_LENGTH = 12
MAX_PASSWORD_LENGTH = 1_000


def hash_password(password: str) -> str:
    """Return the value for RETOMA_ADMIN_PASSWORD_HASH. Raise InvalidInput for a password of the wrong length."""
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        raise InvalidInput(f"use a password of {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH:,} characters")
    return PasswordHasher().hash(password)


def verify_password(password: str, password_hash: str) -> bool:
    """Return whether the password is right. Takes 50 ms and 64 MiB on purpose: call it in a thread, and rarely."""
    if len(password) > MAX_PASSWORD_LENGTH:
        return False
    try:
        return PasswordHasher().verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False


async def open_session(database: Database, password_hash: str) -> str:
    """Return the token of a new session. It is valid until the password changes."""
    token = secrets.token_urlsafe(32)
    await sessions.add_session(database, hash_secret(token), hash_secret(password_hash))
    return token


async def is_live(database: Database, token: str, password_hash: str) -> bool:
    return await sessions.use_session(database, hash_secret(token), hash_secret(password_hash))


async def find_live(database: Database, digests: Iterable[bytes], password_hash: str) -> set[bytes]:
    """Return the digests of tokens with live sessions. This does not count as using them."""
    return await sessions.find_live(database, digests, hash_secret(password_hash))


async def end_session(database: Database, token: str) -> None:
    await sessions.end_session(database, hash_secret(token))
