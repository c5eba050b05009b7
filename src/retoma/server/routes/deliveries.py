"""Webhook deliveries, including the dead letters."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from retoma.records import DeliveryDetails
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.schemas import (
    MAX_INT,
    Before,
    DeliveryPage,
    Limit,
    Name,
    RedeliverRequest,
    RedeliverResult,
)
from retoma.server.serializers import mask_url
from retoma.states import DeliveryState

router = APIRouter(prefix="/deliveries", tags=["deliveries"])
Reader = Annotated[Principal, require_scope("deliveries:read")]
Writer = Annotated[Principal, require_scope("deliveries:write")]


@router.get("", summary="List webhook deliveries, newest first; `state=dead` lists dead letters")
async def list_deliveries(
    by: Reader,
    state: Annotated[list[DeliveryState] | None, Query(description="Only deliveries in one of these states.")] = None,
    run: Annotated[UUID | None, Query(description="Only deliveries of this run.")] = None,
    endpoint: Annotated[int | None, Query(ge=1, le=MAX_INT, description="Only deliveries to this endpoint.")] = None,
    tenant: Annotated[Name | None, Query(description="Only this tenant.")] = None,
    before: Annotated[Before, Query()] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> DeliveryPage:
    found = await by.client.webhooks.list_deliveries(
        tenant=tenant, states=state, run=run, endpoint=endpoint, before=before, limit=limit + 1
    )
    page = found[:limit]
    return DeliveryPage(deliveries=[mask_url(one) for one in page], next=page[-1].id if len(found) > limit else None)


@router.get("/{delivery:uuid}", summary="Get a delivery with its body and attempts", responses=document_problems(404))
async def get_delivery(delivery: UUID, by: Reader) -> DeliveryDetails:
    return mask_url(await by.client.webhooks.get_delivery(delivery))


@router.post(
    "/redeliver",
    status_code=202,
    summary="Redeliver all dead deliveries of an endpoint, a URL or a period",
)
async def redeliver(body: RedeliverRequest, by: Writer) -> RedeliverResult:
    return RedeliverResult(deliveries=await by.client.webhooks.redeliver_all(**body.model_dump()))


@router.post(
    "/{delivery:uuid}/redeliver",
    status_code=202,
    summary="Redeliver a dead delivery with the same ID and body",
    responses=document_problems(404, 409),
)
async def redeliver_delivery(delivery: UUID, by: Writer) -> DeliveryDetails:
    await by.client.webhooks.redeliver(delivery)
    return mask_url(await by.client.webhooks.get_delivery(delivery))
