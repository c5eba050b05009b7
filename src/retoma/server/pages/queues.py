"""The page of queues: their jobs, times and workers, and how many workers each needs."""

from __future__ import annotations

from starlette.responses import Response

from retoma.engine.autoscale import Reason
from retoma.errors import NotFound
from retoma.metrics import QueueMetrics
from retoma.records import AutoscaleAdvice, Worker
from retoma.server.pages.capacity import read_capacity
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext

MAX_ADVISED_QUEUES = 50  # each needs queries of its own


async def show_queues(context: PageContext) -> Response:
    client = context.client
    queues, workers = (await client.metrics.get_snapshot()).queues, await client.workers.list()
    sees_all = client.allowed_tenants is None
    return context.render(
        "queues.html",
        queues=queues,
        times=await client.metrics.list_queue_times() if sees_all else {},
        workers={queue.queue: _list_serving(context, workers, queue) for queue in queues},
        advice={queue.queue: await _get_advice(context, queue.queue) for queue in queues[:MAX_ADVISED_QUEUES]}
        if sees_all
        else {},
        explain=lambda reason: _explain(context, reason),
    )


def _list_serving(context: PageContext, workers: list[Worker], queue: QueueMetrics) -> list[Worker]:
    """Return the workers that claim jobs of this queue."""
    timeout = context.client.heartbeat_timeout
    return [each for each in workers if queue.queue in each.queues and each.is_alive(timeout) and not each.is_draining]


async def _get_advice(context: PageContext, queue: str) -> AutoscaleAdvice | None:
    try:
        return await context.client.queues.get_autoscale_advice(queue)
    except NotFound:  # its last worker has just stopped
        return None


def _explain(context: PageContext, reason: str) -> str:
    """Return why so many workers are advised, in the viewer's language."""
    if not isinstance(reason, Reason):
        return reason
    values = {
        name: _explain(context, value) if isinstance(value, str) else context.formats.exact(value)
        for name, value in reason.values.items()
    }
    return context.gettext(reason.message, **values)


async def limit_queue(context: PageContext) -> Response:
    await context.client.queues.update(context.fields.get("queue", ""), concurrency=read_capacity(context))
    return context.redirect("/queues", "queue_limited")


async def pause_queue(context: PageContext) -> Response:
    reason = context.fields.get("reason", "").strip() or None
    await context.client.queues.pause(context.fields.get("queue", ""), by=context.by, reason=reason)
    return context.redirect("/queues", "queue_paused")


async def resume_queue(context: PageContext) -> Response:
    await context.client.queues.resume(context.fields.get("queue", ""), by=context.by)
    return context.redirect("/queues", "queue_resumed")


PAGES = (
    Page("/queues", show_queues, scope="pools:read"),
    Page("/queues/limit", submit=limit_queue, submit_scope="pools:write"),
    Page("/queues/pause", submit=pause_queue, submit_scope="pools:write"),
    Page("/queues/resume", submit=resume_queue, submit_scope="pools:write"),
)
