"""Webhooks that are or were owed, and the dead letters among them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from retoma.outgoing import without_values
from retoma.records import Delivery
from retoma.server.callers import Caller, caller
from retoma.server.problems import documented
from retoma.server.shapes import (
    LARGEST_INT,
    AttemptShape,
    Before,
    DeliveryDetails,
    DeliveryPage,
    DeliveryShape,
    Limit,
    Name,
    RedriveGiven,
    Redriven,
)
from retoma.states import DeliveryState

router = APIRouter(prefix="/deliveries", tags=["deliveries"])
Reader = Annotated[Caller, caller("deliveries:read")]
Writer = Annotated[Caller, caller("deliveries:write")]


@router.get("", summary="List deliveries, newest first; state=dead are the dead letters")
async def list_deliveries(
    by: Reader,
    state: Annotated[list[DeliveryState] | None, Query(description="In one of these states.")] = None,
    run: Annotated[UUID | None, Query(description="Of this run.")] = None,
    endpoint: Annotated[int | None, Query(ge=1, le=LARGEST_INT, description="To this endpoint.")] = None,
    tenant: Annotated[Name | None, Query(description="Of this tenant.")] = None,
    before: Annotated[Before, Query()] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> DeliveryPage:
    if by.tenant is not None and tenant not in (None, by.tenant):
        return DeliveryPage(deliveries=[], next=None)
    found = await by.client.deliveries(
        tenant=by.tenant or tenant, states=state, run=run, endpoint=endpoint, before=before, limit=limit + 1
    )
    page = found[:limit]
    return DeliveryPage(deliveries=[_shape(one) for one in page], next=page[-1].id if len(found) > limit else None)


@router.get("/{delivery:uuid}", summary="Show a delivery with its body and every attempt", responses=documented(404))
async def show_delivery(delivery: UUID, by: Reader) -> DeliveryDetails:
    return _details(await by.client.delivery(delivery, tenant=by.tenant))


@router.post(
    "/redrive",
    status_code=202,
    summary="Let all dead deliveries of an endpoint, a URL or a time be sent again",
)
async def redrive_deliveries(given: RedriveGiven, by: Writer) -> Redriven:
    return Redriven(
        deliveries=await by.client.redrive_all(
            tenant=by.tenant, endpoint=given.endpoint, url=given.url, from_at=given.from_at, to_at=given.to_at
        )
    )


@router.post(
    "/{delivery:uuid}/redrive",
    status_code=202,
    summary="Let a dead delivery be sent again, with the same id and body",
    responses=documented(404, 409),
)
async def redrive_delivery(delivery: UUID, by: Writer) -> DeliveryDetails:
    await by.client.redrive(delivery, tenant=by.tenant)
    return _details(await by.client.delivery(delivery, tenant=by.tenant))


def _shape(delivery: Delivery) -> DeliveryShape:
    shown = {name: getattr(delivery, name) for name in DeliveryShape.model_fields}
    return DeliveryShape(**shown | {"url": without_values(delivery.url)})


def _details(delivery: Delivery) -> DeliveryDetails:
    return DeliveryDetails(
        **_shape(delivery).model_dump(),
        body=delivery.body,
        attempts=[
            AttemptShape(
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
