"""Budgets: what runs and tenants may spend, and what they have spent of it."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Response

from retoma.records import BudgetPeriod, BudgetStatus, TenantMoney
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.routes.runs import get_own_run
from retoma.server.schemas import BudgetHistory, BudgetList, BudgetRequest, MoneyRequest, Name

router = APIRouter(tags=["budgets"])
Reader = Annotated[Principal, require_scope("runs:read")]
Writer = Annotated[Principal, require_scope("budgets:write")]
TenantName = Annotated[Name, Path(description="The tenant.")]
Period = Annotated[BudgetPeriod, Path(description="Whether it limits each run, each day or each month.")]
OfPipeline = Annotated[
    Name | None, Query(description="The pipeline; without it, the budget of all pipelines of the tenant.")
]


@router.get("/budgets", summary="List budgets with what is used of them now", responses=document_problems(404))
async def list_budgets(
    by: Reader,
    tenant: Annotated[Name | None, Query(description="Only this tenant.")] = None,
    run: Annotated[UUID | None, Query(description="Only those that limit this run, with what it has used.")] = None,
) -> BudgetList:
    if run is not None:
        await get_own_run(by, run)
    return BudgetList(budgets=list(await by.client.budgets.list_statuses(tenant=tenant, run=run)))


@router.get("/budgets/{tenant}/{period}", summary="Get a budget", responses=document_problems(404))
async def get_budget(tenant: TenantName, period: Period, by: Reader, pipeline: OfPipeline = None) -> BudgetStatus:
    return await by.client.budgets.get_status(tenant, period, pipeline=pipeline)


@router.get(
    "/budgets/{tenant}/{period}/history",
    summary="List what was spent in the current period and those before it",
    responses=document_problems(404),
)
async def list_budget_history(
    tenant: TenantName,
    period: Period,
    by: Reader,
    pipeline: OfPipeline = None,
    periods: Annotated[int, Query(ge=1, le=400, description="How many periods.")] = 12,
) -> BudgetHistory:
    found = await by.client.budgets.list_history(tenant, period, pipeline=pipeline, periods=periods)
    return BudgetHistory(periods=list(found))


@router.put("/budgets/{tenant}/{period}", summary="Create or change a budget", responses=document_problems(403))
async def set_budget(
    tenant: TenantName, period: Period, body: BudgetRequest, by: Writer, pipeline: OfPipeline = None
) -> BudgetStatus:
    await by.client.budgets.set(
        tenant, period, body.micros, pipeline=pipeline, action=body.action, warn_at=body.warn_at
    )
    return await by.client.budgets.get_status(tenant, period, pipeline=pipeline)


@router.delete(
    "/budgets/{tenant}/{period}", summary="Remove a budget", status_code=204, responses=document_problems(403, 404)
)
async def remove_budget(tenant: TenantName, period: Period, by: Writer, pipeline: OfPipeline = None) -> Response:
    await by.client.budgets.remove(tenant, period, pipeline=pipeline)
    return Response(status_code=204)


@router.get(
    "/tenants/{tenant}/money", summary="Get a tenant's time zone and currency", responses=document_problems(404)
)
async def get_money(tenant: TenantName, by: Reader) -> TenantMoney:
    return await by.client.budgets.get_money(tenant)


@router.put(
    "/tenants/{tenant}/money", summary="Set a tenant's time zone and currency", responses=document_problems(403)
)
async def set_money(tenant: TenantName, body: MoneyRequest, by: Writer) -> TenantMoney:
    return await by.client.budgets.set_money(
        tenant, time_zone=body.time_zone, currency=body.currency, rate=body.rate, rate_date=body.rate_date
    )
