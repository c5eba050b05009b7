"""The pages of pools and workers."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

from starlette.responses import Response

from retoma.errors import InvalidInput
from retoma.records import RunningJob
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext, parse_number

MAX_JOBS = 500
MAX_WAITERS = 5  # of each pool
STACK_WAIT = timedelta(seconds=3)  # more than between two heartbeats


async def show_pools(context: PageContext) -> Response:
    pools = context.client.pools
    return context.render(
        "pools.html",
        pools=await pools.list(),
        holders=await pools.list_holders(limit=MAX_JOBS),
        waiters=await pools.list_waiters(limit=MAX_WAITERS),
        now=await context.client.now(),
    )


async def set_pool(context: PageContext) -> Response:
    await context.client.pools.update(context.fields.get("pool", ""), capacity=read_capacity(context))
    return context.redirect("/pools", "pool_set")


def read_capacity(context: PageContext) -> int:
    capacity = context.fields.get("capacity", "")
    if not (capacity.isascii() and capacity.isdigit() and len(capacity) < 8):
        raise InvalidInput(context.gettext("The capacity must be a whole number, 0 or more."))
    return int(capacity)


async def show_workers(context: PageContext) -> Response:
    client = context.client
    jobs: defaultdict[int, list[RunningJob]] = defaultdict(list)
    for job in await client.workers.list_jobs(limit=MAX_JOBS):
        jobs[job.worker].append(job)
    return context.render(
        "workers.html",
        workers=await client.workers.list(),
        jobs=jobs,
        stacks={each.worker: each for each in await client.workers.list_stacks()} if context.may("admin") else {},
        now=await client.now(),
        heartbeat_timeout=client.heartbeat_timeout,
    )


async def request_stacks(context: PageContext) -> Response:
    worker = parse_number(context.fields.get("worker", ""), 0)
    await context.client.workers.request_stacks(worker, by=context.by)
    await context.client.workers.wait_for_stacks(worker, STACK_WAIT)
    return context.redirect("/workers", anchor=f"worker-{worker}")


async def drain_worker(context: PageContext) -> Response:
    await context.client.workers.drain(parse_number(context.fields.get("worker", ""), 0), by=context.by)
    return context.redirect("/workers", "draining")


PAGES = (
    Page("/pools", show_pools, set_pool, scope="pools:read", submit_scope="pools:write"),
    Page("/workers", show_workers, drain_worker, scope="pools:read", submit_scope="pools:write"),
    Page("/workers/stacks", submit=request_stacks, submit_scope="admin"),
)
