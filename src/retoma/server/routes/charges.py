"""Charges: what attempts have used and cost."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from retoma.client import ChargedBy
from retoma.records import ChargeRecord, ChargeTotal
from retoma.server.callers import Caller, caller
from retoma.server.problems import documented
from retoma.server.routes.runs import own
from retoma.server.shapes import ChargePage, ChargeShape, ChargeTotals, ChargeTotalShape, Limit, Name

router = APIRouter(tags=["charges"])
Reader = Annotated[Caller, caller("runs:read")]
After = Annotated[UUID | None, Query(description="`next` of the page before.")]


@router.get("/runs/{run:uuid}/charges", summary="What a run has cost, attempt by attempt", responses=documented(404))
async def list_run_charges(
    run: UUID, by: Reader, after: After = None, limit: Annotated[Limit, Query()] = 100
) -> ChargePage:
    await own(by, run)
    found = await by.client.charges(run, after=after, limit=limit + 1)
    totals = await by.client.charge_totals(run=run)
    page = found[:limit]
    return ChargePage(
        micros=sum(total.micros for total in totals),
        charges=[_charge(charge) for charge in page],
        totals=[_total(total) for total in totals],
        next=page[-1].id if len(found) > limit else None,
    )


@router.get("/charges", summary="Sums of charges, told apart as you ask")
async def list_charge_totals(
    by: Reader,
    tell_apart: Annotated[list[ChargedBy] | None, Query(alias="by", max_length=6)] = None,
    tenant: Annotated[Name | None, Query(description="Of this tenant.")] = None,
    since: Annotated[AwareDatetime | None, Query(description="From then on.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Before then.")] = None,
    limit: Annotated[Limit, Query()] = 100,
) -> ChargeTotals:
    if by.tenant is not None and tenant not in (None, by.tenant):
        return ChargeTotals(totals=[])
    found = await by.client.charge_totals(
        by=tell_apart or ("tenant",), tenant=by.tenant or tenant, since=since, until=until, limit=limit
    )
    return ChargeTotals(totals=[_total(total) for total in found])


def _charge(charge: ChargeRecord) -> ChargeShape:
    return ChargeShape(**{name: getattr(charge, name) for name in ChargeShape.model_fields})


def _total(total: ChargeTotal) -> ChargeTotalShape:
    return ChargeTotalShape(**vars(total))
