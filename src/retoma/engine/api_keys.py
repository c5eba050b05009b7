"""API keys: shown once, stored as digests. Two keys of one name may be live, so one can replace the other."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from retoma.errors import Conflict, InvalidInput, NotFound
from retoma.records import CROSS_TENANT_SCOPES, ApiKey, NewApiKey, Scope
from retoma.store import api_keys, clock
from retoma.store.database import Database

PREFIX = "rtm_"
OVERLAP = timedelta(hours=24)
_RANDOM_BYTES = 20
_CHECKSUM_LETTERS = 6
_LENGTH = len(PREFIX) + _RANDOM_BYTES * 8 // 5 + _CHECKSUM_LETTERS
_HINT_LETTERS = len(PREFIX) + 4


async def create(
    database: Database, name: str, scopes: Iterable[Scope], tenant: tuple[int, str] | None, expires_at: datetime | None
) -> NewApiKey:
    wanted = frozenset(scopes)
    _check_scopes(wanted, tenant)
    secret = generate_secret()
    key = await api_keys.add_key(
        database,
        name=name,
        tenant=None if tenant is None else tenant[0],
        scopes=wanted,
        digest=hash_secret(secret),
        hint=secret[:_HINT_LETTERS],
        expires_at=expires_at,
    )
    if key is None:
        raise Conflict(f"two live keys are already named {name!r}: revoke one of them first")
    return NewApiKey(key, secret)


async def find_by_secret(database: Database, secret: str) -> ApiKey | None:
    """Return the live key with this secret, if any. Text that cannot be a key is not looked up."""
    return await api_keys.use_key(database, hash_secret(secret)) if is_well_formed(secret) else None


async def get(database: Database, number: int, tenants: Sequence[int] | None = None) -> ApiKey:
    """Return the key. Raise NotFound if there is none, or if it is not one of these tenants."""
    for found in await api_keys.list_keys(database, tenants, id=number):
        return found
    raise NotFound(f"there is no key {number}: `retoma keys list` shows all keys")


async def revoke(database: Database, number: int) -> ApiKey:
    await api_keys.revoke_key(database, number)
    return await get(database, number)


async def get_successor_expiry(database: Database, key: ApiKey) -> datetime | None:
    """Return the expiry of a key that replaces another: it has the same lifetime."""
    if key.expires_at is None:
        return None
    return await clock.now(database) + (key.expires_at - key.created_at)


def generate_secret() -> str:
    """Return `rtm_`, 160 random bits, and a checksum by which secret scanners and the server recognise keys."""
    random = _encode_base32(secrets.token_bytes(_RANDOM_BYTES))
    return f"{PREFIX}{random}{_compute_checksum(random)}"


def is_well_formed(secret: str) -> bool:
    if len(secret) != _LENGTH or not secret.startswith(PREFIX) or not secret.isascii():
        return False
    random = secret[len(PREFIX) : -_CHECKSUM_LETTERS]
    return hmac.compare_digest(secret[-_CHECKSUM_LETTERS:], _compute_checksum(random))


def hash_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _compute_checksum(random: str) -> str:
    return _encode_base32(hashlib.sha256(random.encode()).digest())[:_CHECKSUM_LETTERS]


def _encode_base32(random: bytes) -> str:
    return base64.b32encode(random).decode().rstrip("=").lower()


def _check_scopes(scopes: frozenset[Scope], tenant: tuple[int, str] | None) -> None:
    if not scopes:
        raise InvalidInput(f"a key needs at least one scope of {', '.join(Scope)}")
    if tenant is not None and (beyond := scopes & CROSS_TENANT_SCOPES):
        raise InvalidInput(
            f"{', '.join(sorted(beyond))} cannot be limited to the tenant {tenant[1]!r}: create the key for all tenants"
        )
