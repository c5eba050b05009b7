"""The deliveries of webhooks; dead letters can be redelivered here."""

from __future__ import annotations

from starlette.responses import Response

from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.server.serializers import mask_url
from retoma.states import DeliveryState

PAGE_SIZE = 50


async def show_deliveries(context: PageContext) -> Response:
    query = context.query
    state = context.get_query_choice("state", DeliveryState)
    found = await context.client.webhooks.list_deliveries(
        states=[state] if state else None,
        tenant=query.get("tenant") or None,
        run=context.get_query_id("run"),
        before=context.get_query_id("before"),
        limit=PAGE_SIZE + 1,
    )
    return context.render(
        "deliveries.html",
        deliveries=[mask_url(each) for each in found[:PAGE_SIZE]],
        next=found[PAGE_SIZE - 1].id if len(found) > PAGE_SIZE else None,
        states=list(DeliveryState),
        tenants=await context.client.tenants.list_names(),
        query=query,
        filtered=any(query.get(name) for name in ("state", "tenant", "run", "before")),
        now=await context.client.now(),
    )


async def show_delivery(context: PageContext) -> Response:
    delivery = await context.client.webhooks.get_delivery(context.get_path_id("delivery"))
    return context.render("delivery.html", delivery=mask_url(delivery), now=await context.client.now())


async def redeliver_delivery(context: PageContext) -> Response:
    delivery = context.get_path_id("delivery")
    await context.client.webhooks.redeliver(delivery)
    return context.redirect(f"/deliveries/{delivery}", "sent_again")


PAGES = (
    Page("/deliveries", show_deliveries, scope="deliveries:read"),
    Page("/deliveries/{delivery}", show_delivery, scope="deliveries:read"),
    Page("/deliveries/{delivery}/redeliver", submit=redeliver_delivery, submit_scope="deliveries:write"),
)
