"""Webhooks that are or were owed; those given up can be sent again from here."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from starlette.responses import Response

from retoma.errors import NotFound
from retoma.outgoing import without_values
from retoma.records import Delivery
from retoma.server.pages.page import Page
from retoma.server.pages.visit import Visit
from retoma.states import DeliveryState

SIZE = 50


async def listed(visit: Visit) -> Response:
    asked = visit.asked
    state = visit.choice("state", DeliveryState)
    found = await visit.client.deliveries(
        states=[state] if state else None,
        tenant=asked.get("tenant") or None,
        run=_id(asked.get("run", "")),
        before=_id(asked.get("before", "")),
        limit=SIZE + 1,
    )
    return visit.show(
        "deliveries.html",
        deliveries=[_masked(each) for each in found[:SIZE]],
        next=found[SIZE - 1].id if len(found) > SIZE else None,
        states=list(DeliveryState),
        asked=asked,
        filtered=any(asked.get(name) for name in ("state", "tenant", "run", "before")),
        now=await visit.client.now(),
    )


async def shown(visit: Visit) -> Response:
    delivery = await visit.client.delivery(visit.id("delivery"))
    return visit.show("delivery.html", delivery=_masked(delivery), now=await visit.client.now())


async def redrive(visit: Visit) -> Response:
    delivery = visit.id("delivery")
    await visit.client.redrive(delivery)
    return visit.go(f"/deliveries/{delivery}", "sent_again")


def _masked(delivery: Delivery) -> Delivery:
    return replace(delivery, url=without_values(delivery.url))


def _id(given: str) -> UUID | None:
    try:
        return UUID(given) if given else None
    except ValueError:
        raise NotFound("this is no id") from None


PAGES = (
    Page("/deliveries", listed),
    Page("/deliveries/{delivery}", shown),
    Page("/deliveries/{delivery}/redrive", act=redrive),
)
