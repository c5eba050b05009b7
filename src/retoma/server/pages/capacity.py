"""Pools, queues and workers: what there is to work with."""

from __future__ import annotations

from starlette.responses import Response

from retoma.errors import InvalidInput
from retoma.server.pages.page import Page
from retoma.server.pages.visit import Visit


async def pools(visit: Visit) -> Response:
    return visit.show("pools.html", pools=await visit.client.pools(), queues=(await visit.client.standing()).queues)


async def set_pool(visit: Visit) -> Response:
    given = visit.fields.get("capacity", "")
    if not (given.isascii() and given.isdigit() and len(given) < 8):
        raise InvalidInput(visit.say("capacity is a number"))
    await visit.client.set_pool(visit.fields.get("pool", ""), capacity=int(given))
    return visit.go("/pools", "pool_set")


async def workers(visit: Visit) -> Response:
    return visit.show("workers.html", workers=await visit.client.workers(), now=await visit.client.now())


PAGES = (Page("/pools", pools, set_pool), Page("/workers", workers))
