"""Pools: shared capacity that can be changed while runs are in progress."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from retoma.errors import NotFound
from retoma.records import Pool
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.schemas import Name, PoolList, PoolRequest

router = APIRouter(prefix="/pools", tags=["pools"])
Reader = Annotated[Principal, require_scope("pools:read")]
Writer = Annotated[Principal, require_scope("pools:write")]
PoolName = Annotated[Name, Path()]


@router.get("", summary="List pools")
async def list_pools(by: Reader) -> PoolList:
    return PoolList(pools=await by.client.pools.list())


@router.get("/{pool}", summary="Get a pool", responses=document_problems(404))
async def get_pool(pool: PoolName, by: Reader) -> Pool:
    for found in await by.client.pools.list(pool):
        return found
    raise NotFound(f"pool {pool!r} not found")


@router.put("/{pool}", summary="Update a pool's capacity or rate, or end its pause", responses=document_problems(404))
async def update_pool(pool: PoolName, body: PoolRequest, by: Writer) -> Pool:
    return await by.client.pools.update(pool, **body.model_dump())
