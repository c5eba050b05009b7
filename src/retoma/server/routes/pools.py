"""Pools: shared capacity, looked at and changed while everything runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from retoma.errors import NotFound
from retoma.records import PoolRecord
from retoma.server.callers import Caller, caller
from retoma.server.problems import documented
from retoma.server.shapes import Name, PoolGiven, PoolList, PoolShape

router = APIRouter(prefix="/pools", tags=["pools"])
Reader = Annotated[Caller, caller("pools:read")]
Writer = Annotated[Caller, caller("pools:write")]
PoolName = Annotated[Name, Path()]


@router.get("", summary="List pools")
async def list_pools(by: Reader) -> PoolList:
    return PoolList(pools=[_shape(pool) for pool in await by.client.pools(tenant=by.tenant)])


@router.get("/{pool}", summary="Show one pool", responses=documented(404))
async def show_pool(pool: PoolName, by: Reader) -> PoolShape:
    for found in await by.client.pools(pool, tenant=by.tenant):
        return _shape(found)
    raise NotFound(f"there is no pool {pool!r}")


@router.put("/{pool}", summary="Change a pool's capacity or rate, or end its pause", responses=documented(404))
async def change_pool(pool: PoolName, given: PoolGiven, by: Writer) -> PoolShape:
    return _shape(await by.client.set_pool(pool, **given.model_dump()))


def _shape(pool: PoolRecord) -> PoolShape:
    return PoolShape(**{name: getattr(pool, name) for name in PoolShape.model_fields})
