"""The deliveries of webhooks; dead letters can be redelivered here."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from starlette.responses import Response

from retoma.errors import NotFound
from retoma.outgoing import mask_query_values
from retoma.records import Delivery
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.states import DeliveryState

PAGE_SIZE = 50


async def show_deliveries(context: PageContext) -> Response:
    asked = context.query
    state = context.get_query_choice("state", DeliveryState)
    found = await context.client.webhooks.list_deliveries(
        states=[state] if state else None,
        tenant=asked.get("tenant") or None,
        run=_parse_id(asked.get("run", "")),
        before=_parse_id(asked.get("before", "")),
        limit=PAGE_SIZE + 1,
    )
    return context.render(
        "deliveries.html",
        deliveries=[_mask_url(each) for each in found[:PAGE_SIZE]],
        next=found[PAGE_SIZE - 1].id if len(found) > PAGE_SIZE else None,
        states=list(DeliveryState),
        query=asked,
        filtered=any(asked.get(name) for name in ("state", "tenant", "run", "before")),
        now=await context.client.now(),
    )


async def show_delivery(context: PageContext) -> Response:
    delivery = await context.client.webhooks.get_delivery(context.get_path_id("delivery"))
    return context.render("delivery.html", delivery=_mask_url(delivery), now=await context.client.now())


async def redrive_delivery(context: PageContext) -> Response:
    delivery = context.get_path_id("delivery")
    await context.client.webhooks.redrive(delivery)
    return context.redirect(f"/deliveries/{delivery}", "sent_again")


def _mask_url(delivery: Delivery) -> Delivery:
    return replace(delivery, url=mask_query_values(delivery.url))


def _parse_id(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise NotFound("this is not a valid id") from None


PAGES = (
    Page("/deliveries", show_deliveries),
    Page("/deliveries/{delivery}", show_delivery),
    Page("/deliveries/{delivery}/redrive", submit=redrive_delivery),
)
