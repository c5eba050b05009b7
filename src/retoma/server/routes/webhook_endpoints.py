"""Webhook endpoints: the URLs that deliveries go to."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from retoma.records import Endpoint
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.schemas import MAX_INT, EndpointPage, Limit, Name
from retoma.server.serializers import mask_url

router = APIRouter(prefix="/endpoints", tags=["deliveries"])
Reader = Annotated[Principal, require_scope("deliveries:read")]
Writer = Annotated[Principal, require_scope("deliveries:write")]
EndpointId = Annotated[int, Path(ge=1, le=MAX_INT)]


@router.get("", summary="List webhook endpoints, newest first")
async def list_endpoints(
    by: Reader,
    tenant: Annotated[Name | None, Query(description="Only this tenant.")] = None,
    before: Annotated[int | None, Query(ge=1, le=MAX_INT, description="`next` of the previous page.")] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> EndpointPage:
    found = await by.client.webhooks.list_endpoints(tenant=tenant, before=before, limit=limit + 1)
    page = found[:limit]
    return EndpointPage(endpoints=[mask_url(one) for one in page], next=page[-1].id if len(found) > limit else None)


@router.post(
    "/{endpoint}/enable",
    summary="Enable a disabled endpoint; its dead deliveries must be redelivered separately",
    responses=document_problems(404),
)
async def enable_endpoint(endpoint: EndpointId, by: Writer) -> Endpoint:
    await by.client.webhooks.enable_endpoint(endpoint)
    return mask_url(await by.client.webhooks.get_endpoint(endpoint))
