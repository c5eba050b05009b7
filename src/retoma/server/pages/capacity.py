"""The pages of pools, queues and workers."""

from __future__ import annotations

from starlette.responses import Response

from retoma.errors import InvalidInput
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext


async def show_pools(context: PageContext) -> Response:
    return context.render(
        "pools.html",
        pools=await context.client.pools.list(),
        queues=(await context.client.metrics.get_snapshot()).queues,
    )


async def set_pool(context: PageContext) -> Response:
    capacity = context.fields.get("capacity", "")
    if not (capacity.isascii() and capacity.isdigit() and len(capacity) < 8):
        raise InvalidInput(context.gettext("The capacity must be a whole number, 0 or more."))
    await context.client.pools.update(context.fields.get("pool", ""), capacity=int(capacity))
    return context.redirect("/pools", "pool_set")


async def show_workers(context: PageContext) -> Response:
    return context.render(
        "workers.html",
        workers=await context.client.workers.list(),
        now=await context.client.now(),
        heartbeat_timeout=context.client.heartbeat_timeout,
    )


PAGES = (Page("/pools", show_pools, set_pool), Page("/workers", show_workers))
