"""Charges: the usage and cost of attempts."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from retoma.client import ChargedBy
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.routes.runs import get_own_run
from retoma.server.schemas import ChargePage, ChargeTotals, Limit, Name

router = APIRouter(tags=["charges"])
Reader = Annotated[Principal, require_scope("runs:read")]
After = Annotated[UUID | None, Query(description="`next` of the previous page.")]


@router.get("/runs/{run:uuid}/charges", summary="List the charges of a run", responses=document_problems(404))
async def list_run_charges(
    run: UUID, by: Reader, after: After = None, limit: Annotated[Limit, Query()] = 100
) -> ChargePage:
    await get_own_run(by, run)
    found = await by.client.costs.list_charges(run, after=after, limit=limit + 1)
    totals = await by.client.costs.get_totals(run=run)
    page = found[:limit]
    return ChargePage(
        micros=sum(total.micros for total in totals),
        charges=page,
        totals=totals,
        next=page[-1].id if len(found) > limit else None,
    )


@router.get("/charges", summary="List charge totals, grouped by the fields in `by`")
async def list_charge_totals(
    by: Reader,
    group_by: Annotated[
        list[ChargedBy] | None, Query(alias="by", max_length=7, description="Group by these fields. Default: tenant.")
    ] = None,
    tenant: Annotated[Name | None, Query(description="Only this tenant.")] = None,
    since: Annotated[AwareDatetime | None, Query(description="Charges at or after this time.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Charges before this time.")] = None,
    limit: Annotated[Limit, Query()] = 100,
) -> ChargeTotals:
    found = await by.client.costs.get_totals(
        by=group_by or ("tenant",), tenant=tenant, since=since, until=until, limit=limit
    )
    return ChargeTotals(totals=found)
