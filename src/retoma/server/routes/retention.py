"""How long ended runs are kept, and erasing at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from retoma.client.retention import MAX_KEEP
from retoma.records import Erasure, FinalClass, RetentionPreview
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.schemas import (
    Limit,
    Name,
    RequestBody,
    RetentionDetails,
    RetentionRuleList,
    RunHoldList,
    RunsRemoved,
)

router = APIRouter(tags=["retention"])
Administrator = Annotated[Principal, require_scope("admin")]
Pipeline = Annotated[Name | None, Query(description="Of this pipeline; any without it.")]
Tenant = Annotated[Name | None, Query(description="Of this tenant; any without it.")]
EndedAs = Annotated[FinalClass, Query(description="Of runs that ended this way.")]


class RetentionRuleRequest(RequestBody):
    keep: Annotated[
        timedelta | None,
        Field(ge=timedelta(0), le=MAX_KEEP, description="How long runs are kept, such as `P30D`; null: for ever."),
    ]
    pipeline: Name | None = None
    tenant: Name | None = None
    final_class: FinalClass = FinalClass.ENDED


class HoldRequest(RequestBody):
    reason: Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"^[^\x00]*\S[^\x00]*$")]


@router.get("/retention", summary="Get what was removed, and what each table takes on disk")
async def get_retention(by: Administrator) -> RetentionDetails:
    space = by.client.retention
    return RetentionDetails(
        totals=await space.get_totals(), removals=await space.list_removals(), tables=await space.list_table_sizes()
    )


@router.get("/retention/rules", summary="List how long ended runs are kept")
async def list_retention_rules(by: Administrator) -> RetentionRuleList:
    """The rules that people have set, what pipelines declare, and the settings of the server."""
    return RetentionRuleList(rules=await by.client.retention.list_rules())


@router.put("/retention/rules", status_code=204, summary="Set a rule", responses=document_problems(404))
async def set_retention_rule(body: RetentionRuleRequest, by: Administrator) -> None:
    await by.client.retention.set_rule(
        body.keep, pipeline=body.pipeline, tenant=body.tenant, final_class=body.final_class, by=by.author
    )


@router.delete("/retention/rules", status_code=204, summary="Remove a rule", responses=document_problems(404))
async def remove_retention_rule(
    by: Administrator, pipeline: Pipeline = None, tenant: Tenant = None, final_class: EndedAs = FinalClass.ENDED
) -> None:
    await by.client.retention.remove_rule(pipeline=pipeline, tenant=tenant, final_class=final_class)


@router.get("/retention/preview", summary="Count what would be removed now")
async def preview_retention(by: Administrator) -> RetentionPreview:
    return await by.client.retention.preview()


@router.post("/retention/run", summary="Remove what is due now")
async def run_retention(by: Administrator) -> RunsRemoved:
    return RunsRemoved(runs=await by.client.retention.run())


@router.get("/retention/holds", summary="List held runs, the last one first")
async def list_holds(by: Administrator, limit: Annotated[Limit, Query()] = 50) -> RunHoldList:
    return RunHoldList(holds=await by.client.retention.list_holds(limit=limit))


@router.put("/runs/{run:uuid}/hold", status_code=204, summary="Hold a run", responses=document_problems(404))
async def hold_run(run: UUID, body: HoldRequest, by: Administrator) -> None:
    """It is kept whatever the rules say, and cannot be erased."""
    await by.client.retention.hold(run, body.reason, by=by.author)


@router.delete("/runs/{run:uuid}/hold", status_code=204, summary="Release a held run", responses=document_problems(404))
async def release_run(run: UUID, by: Administrator) -> None:
    await by.client.retention.release(run)


@router.post("/runs/{run:uuid}/erase", summary="Erase a run and its child runs", responses=document_problems(404, 409))
async def erase_run(run: UUID, by: Administrator) -> Erasure:
    return await by.client.retention.erase_run(run)


@router.post("/tenants/{tenant}/erase", summary="Erase a tenant", responses=document_problems(404, 409))
async def erase_tenant(tenant: Name, by: Administrator) -> Erasure:
    """Removes all its runs, and what applications and people have stored about it. Repeat it if it was interrupted."""
    return await by.client.retention.erase_tenant(tenant)
