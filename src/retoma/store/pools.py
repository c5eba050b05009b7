"""Pools in the database: their limits, the holders of slots and the waiting jobs."""

from __future__ import annotations

from collections.abc import Sequence

from retoma.define.pool import Pool
from retoma.records import PoolRecord
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("pools")


async def declare_pools(database: Database, pools: Sequence[Pool]) -> None:
    """Register these pools. Values that a person has set are kept, unless the application has changed its own since."""
    for pool in pools:
        await database.fetch(
            _SQL["declare_pool"],
            name=pool.name,
            capacity=pool.capacity,
            rate=pool.rate,
            burst=pool.burst,
            per_tenant=pool.per_tenant,
        )


async def list_pools(database: Database, name: str | None = None, tenant: int | None = None) -> list[PoolRecord]:
    rows = await database.fetch(_SQL["list_pools"], name=name, tenant=tenant)
    return [PoolRecord(**row) for row in rows]


async def update_pool(
    database: Database,
    name: str,
    *,
    capacity: int | None = None,
    rate: float | None = None,
    burst: int | None = None,
    per_tenant: int | None = None,
    resume: bool = False,
) -> bool:
    """Change the given values; a rate or a share of 0 means no limit. Return False if there is no such pool."""
    rows = await database.fetch(
        _SQL["set_pool"], name=name, capacity=capacity, rate=rate, burst=burst, per_tenant=per_tenant, resume=resume
    )
    return bool(rows)
