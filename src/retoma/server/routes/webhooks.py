"""Subscriptions: URLs that get events of all runs of a tenant, or of all tenants."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from retoma.outgoing import without_values
from retoma.records import Scope, Subscription
from retoma.server.callers import Caller, caller
from retoma.server.problems import Problem, documented
from retoma.server.shapes import (
    LARGEST_INT,
    Limit,
    Name,
    SubscriptionGiven,
    SubscriptionMade,
    SubscriptionPage,
    SubscriptionShape,
)
from retoma.settings import Settings

router = APIRouter(prefix="/webhooks", tags=["webhooks"])
Reader = Annotated[Caller, caller("deliveries:read")]
Writer = Annotated[Caller, caller("deliveries:write")]
SubscriptionId = Annotated[int, Path(ge=1, le=LARGEST_INT)]


@router.post(
    "",
    status_code=201,
    summary="Subscribe a URL to events; the same URL again replaces its events",
    responses=documented(409),
)
async def subscribe(request: Request, given: SubscriptionGiven, by: Writer) -> SubscriptionMade:
    """Needs the scope `runs:read` too, because webhooks tell what runs are given and result in."""
    if not by.may(Scope.RUNS_READ):
        raise Problem(
            403, "SCOPE_MISSING", "events tell of runs: this key lacks the scope runs:read", scope=Scope.RUNS_READ
        )
    if by.tenant is not None and given.tenant not in (None, by.tenant):
        raise Problem(403, "OTHER_TENANT", "this key subscribes to events of its own tenant only: leave `tenant` out")
    made = await by.client.subscribe(given.url, given.events, tenant=by.tenant or given.tenant)
    settings: Settings = request.app.state.settings
    secret = made.secret if settings.webhook_secret is None else None
    return SubscriptionMade(**_shape(made).model_dump(), secret=secret)


@router.get("", summary="List subscriptions, newest first")
async def list_subscriptions(
    by: Reader,
    tenant: Annotated[Name | None, Query(description="Of this tenant.")] = None,
    before: Annotated[int | None, Query(ge=1, le=LARGEST_INT, description="`next` of the page before.")] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> SubscriptionPage:
    if by.tenant is not None and tenant not in (None, by.tenant):
        return SubscriptionPage(webhooks=[], next=None)
    found = await by.client.subscriptions(tenant=by.tenant or tenant, before=before, limit=limit + 1)
    page = found[:limit]
    return SubscriptionPage(webhooks=[_shape(one) for one in page], next=page[-1].id if len(found) > limit else None)


@router.delete(
    "/{subscription}",
    status_code=204,
    summary="Remove a subscription; deliveries that are already enqueued are still sent",
    responses=documented(404),
)
async def unsubscribe(subscription: SubscriptionId, by: Writer) -> Response:
    await by.client.unsubscribe(subscription, tenant=by.tenant)
    return Response(status_code=204)


def _shape(one: Subscription) -> SubscriptionShape:
    return SubscriptionShape(
        id=one.id, tenant=one.tenant, url=without_values(one.url), events=list(one.events), created_at=one.created_at
    )
