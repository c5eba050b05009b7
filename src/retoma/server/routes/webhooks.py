"""Webhook subscriptions: URLs that receive the events of all runs of a tenant, or of all tenants."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from retoma.records import NewSubscription, Scope
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.schemas import (
    MAX_INT,
    Limit,
    Name,
    SubscriptionPage,
    SubscriptionRequest,
)
from retoma.server.serializers import mask_url
from retoma.settings import Settings

router = APIRouter(prefix="/webhooks", tags=["webhooks"])
Reader = Annotated[Principal, require_scope("deliveries:read")]
Writer = Annotated[Principal, require_scope("deliveries:write")]
SubscriptionId = Annotated[int, Path(ge=1, le=MAX_INT)]


@router.post(
    "",
    status_code=201,
    summary="Subscribe a URL to events; an existing subscription of the URL is replaced",
    responses=document_problems(409),
)
async def create_subscription(request: Request, body: SubscriptionRequest, by: Writer) -> NewSubscription:
    """Requires the scope `runs:read` too, because webhooks contain the inputs and results of runs."""
    by = by.for_scope(Scope.RUNS_READ)
    tenant = body.tenant if by.sees_all_tenants else by.choose_tenant(body.tenant)
    subscription = await by.client.webhooks.subscribe(body.url, body.events, tenant=tenant)
    settings: Settings = request.app.state.settings
    secret = subscription.secret if settings.webhook_secret is None else None
    return replace(mask_url(subscription), secret=secret)


@router.get("", summary="List subscriptions, newest first")
async def list_subscriptions(
    by: Reader,
    tenant: Annotated[Name | None, Query(description="Only this tenant.")] = None,
    before: Annotated[int | None, Query(ge=1, le=MAX_INT, description="`next` of the previous page.")] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> SubscriptionPage:
    found = await by.client.webhooks.list_subscriptions(tenant=tenant, before=before, limit=limit + 1)
    page = found[:limit]
    return SubscriptionPage(webhooks=[mask_url(one) for one in page], next=page[-1].id if len(found) > limit else None)


@router.delete(
    "/{subscription}",
    status_code=204,
    summary="Delete a subscription; deliveries that are already enqueued are still sent",
    responses=document_problems(404),
)
async def delete_subscription(subscription: SubscriptionId, by: Writer) -> Response:
    await by.client.webhooks.unsubscribe(subscription)
    return Response(status_code=204)
