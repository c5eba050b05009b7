"""The pages of pools and workers."""

from __future__ import annotations

from starlette.responses import Response

from retoma.errors import InvalidInput
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext, parse_number


async def show_pools(context: PageContext) -> Response:
    return context.render("pools.html", pools=await context.client.pools.list())


async def set_pool(context: PageContext) -> Response:
    await context.client.pools.update(context.fields.get("pool", ""), capacity=read_capacity(context))
    return context.redirect("/pools", "pool_set")


def read_capacity(context: PageContext) -> int:
    capacity = context.fields.get("capacity", "")
    if not (capacity.isascii() and capacity.isdigit() and len(capacity) < 8):
        raise InvalidInput(context.gettext("The capacity must be a whole number, 0 or more."))
    return int(capacity)


async def show_workers(context: PageContext) -> Response:
    return context.render(
        "workers.html",
        workers=await context.client.workers.list(),
        now=await context.client.now(),
        heartbeat_timeout=context.client.heartbeat_timeout,
    )


async def drain_worker(context: PageContext) -> Response:
    await context.client.workers.drain(parse_number(context.fields.get("worker", ""), 0), by=context.by)
    return context.redirect("/workers", "draining")


PAGES = (
    Page("/pools", show_pools, set_pool),
    Page("/workers", show_workers, drain_worker),
)
