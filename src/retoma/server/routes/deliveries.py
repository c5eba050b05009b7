"""Webhook deliveries, including the dead letters."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from retoma.outgoing import mask_query_values
from retoma.records import Delivery
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.schemas import (
    MAX_INT,
    Before,
    DeliveryAttemptSchema,
    DeliveryDetails,
    DeliveryPage,
    DeliverySchema,
    Limit,
    Name,
    RedriveRequest,
    RedriveResult,
)
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
    if by.tenant is not None and tenant not in (None, by.tenant):
        return DeliveryPage(deliveries=[], next=None)
    found = await by.client.webhooks.list_deliveries(
        tenant=by.tenant or tenant, states=state, run=run, endpoint=endpoint, before=before, limit=limit + 1
    )
    page = found[:limit]
    return DeliveryPage(
        deliveries=[_serialize_delivery(one) for one in page], next=page[-1].id if len(found) > limit else None
    )


@router.get("/{delivery:uuid}", summary="Get a delivery with its body and attempts", responses=document_problems(404))
async def get_delivery(delivery: UUID, by: Reader) -> DeliveryDetails:
    return _serialize_details(await by.client.webhooks.get_delivery(delivery, tenant=by.tenant))


@router.post(
    "/redrive",
    status_code=202,
    summary="Redrive all dead deliveries of an endpoint, a URL or a period",
)
async def redrive_deliveries(body: RedriveRequest, by: Writer) -> RedriveResult:
    return RedriveResult(
        deliveries=await by.client.webhooks.redrive_all(
            tenant=by.tenant, endpoint=body.endpoint, url=body.url, from_at=body.since, to_at=body.until
        )
    )


@router.post(
    "/{delivery:uuid}/redrive",
    status_code=202,
    summary="Redrive a dead delivery with the same ID and body",
    responses=document_problems(404, 409),
)
async def redrive_delivery(delivery: UUID, by: Writer) -> DeliveryDetails:
    await by.client.webhooks.redrive(delivery, tenant=by.tenant)
    return _serialize_details(await by.client.webhooks.get_delivery(delivery, tenant=by.tenant))


def _serialize_delivery(delivery: Delivery) -> DeliverySchema:
    fields = {name: getattr(delivery, name) for name in DeliverySchema.model_fields}
    return DeliverySchema(**fields | {"url": mask_query_values(delivery.url)})


def _serialize_details(delivery: Delivery) -> DeliveryDetails:
    return DeliveryDetails(
        **_serialize_delivery(delivery).model_dump(),
        body=delivery.body,
        attempts=[
            DeliveryAttemptSchema(
                attempt=one.attempt,
                at=one.at,
                seconds=None if one.took is None else one.took.total_seconds(),
                status=one.status,
                error=one.error,
                answer=one.answer,
            )
            for one in delivery.attempts
        ],
    )
