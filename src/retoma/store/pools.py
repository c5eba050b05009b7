"""Pools in the database: their limits, the holders of slots and the waiting jobs."""

from __future__ import annotations

from collections.abc import Sequence

from retoma.define.pool import Pool as DefinedPool
from retoma.records import Pool, PoolJob
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("pools")
LIMITS = ("capacity", "rate", "burst", "per_tenant")


async def declare_pools(database: Database, pools: Sequence[DefinedPool]) -> None:
    """Register these pools. Values that a person has set are kept, unless the application has changed its own since."""
    for pool in pools:
        limits = {limit: getattr(pool, limit) for limit in LIMITS}
        await database.fetch(_SQL["declare_pool"], name=pool.name, **limits)


async def list_pools(database: Database, name: str | None = None, tenants: Sequence[int] | None = None) -> list[Pool]:
    return await database.fetch_records(Pool, _SQL["list_pools"], name=name, tenants=tenants)


async def list_holders(database: Database, tenants: Sequence[int] | None, limit: int) -> list[PoolJob]:
    """Return the jobs that hold slots, by pool, the oldest first."""
    return await database.fetch_records(PoolJob, _SQL["list_pool_holders"], tenants=tenants, limit=limit)


async def list_waiters(database: Database, tenants: Sequence[int] | None, limit: int) -> list[PoolJob]:
    """Return the first `limit` jobs of each pool that wait for its slots."""
    return await database.fetch_records(PoolJob, _SQL["list_pool_waiters"], tenants=tenants, limit=limit)


async def update_pool(database: Database, name: str, *, resume: bool = False, **limits: float | None) -> bool:
    """Change these limits; None keeps one, and a rate or share of 0 removes it. Return False if there is no pool."""
    values = dict.fromkeys(LIMITS) | limits
    return bool(await database.fetch(_SQL["set_pool"], name=name, resume=resume, **values))
