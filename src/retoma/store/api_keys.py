"""API keys in the database: only their digests are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import asyncpg

from retoma.records import ApiKey, Scope
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("api_keys")


async def add_key(
    database: Database,
    *,
    name: str,
    tenant: int | None,
    scopes: Iterable[Scope],
    digest: bytes,
    hint: str,
    expires_at: datetime | None,
) -> ApiKey | None:
    """Return the new key, or None if two active keys already have this name."""
    await database.fetch(_SQL["free_key_slots"], tenant=tenant, name=name)
    await database.fetch(
        _SQL["add_key"],
        name=name,
        tenant=tenant,
        scopes=sorted(scopes),
        digest=digest,
        hint=hint,
        expires_at=expires_at,
    )
    return next(iter(await list_keys(database, digest=digest)), None)


async def use_key(database: Database, digest: bytes) -> ApiKey | None:
    """Return the active key with this digest, and record its use."""
    row = await database.fetchrow(_SQL["use_key"], digest=digest)
    return _make_record(row) if row else None


async def find_live(database: Database, digests: Iterable[bytes]) -> set[bytes]:
    """Return the digests of active keys."""
    return set(await database.fetch_column(_SQL["list_live_keys"], digests=list(digests)))


async def list_keys(
    database: Database,
    tenants: Sequence[int] | None = None,
    include_ended: bool = True,
    *,
    id: int | None = None,  # noqa: A002
    digest: bytes | None = None,
) -> list[ApiKey]:
    """Return keys, newest first."""
    rows = await database.fetch(_SQL["list_keys"], tenants=tenants, include_ended=include_ended, id=id, digest=digest)
    return [_make_record(row) for row in rows]


async def revoke_key(database: Database, number: int) -> None:
    await database.fetch(_SQL["revoke_key"], id=number)


async def expire_after(database: Database, number: int, overlap: timedelta) -> None:
    await database.fetch(_SQL["expire_key"], id=number, overlap=overlap)


def _make_record(row: asyncpg.Record) -> ApiKey:
    return ApiKey(**{**row, "scopes": frozenset(map(Scope, row["scopes"]))})
