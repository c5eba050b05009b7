"""Jobs that wait for their next attempt, and what failed for good: runs with failed jobs, and dead deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from retoma.records import BulkKind, Run
from retoma.server.pages.bulk_actions import read_bulk_filter
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.server.serializers import mask_url
from retoma.states import DeliveryState, RunState

PAGE_SIZE = 50
MAX_FAILED_RUNS = 25  # each needs a query for its error
FAILED = (RunState.FAILED, RunState.COMPLETED_WITH_ERRORS)


@dataclass(frozen=True)
class FailedRun:
    """`error` is that of one of its failed jobs, if it is known."""

    run: Run
    step: str
    item: str
    error: dict[str, Any] | None


async def show_retries(context: PageContext) -> Response:
    query, wanted = context.query, read_bulk_filter(context, BulkKind.RETRY_JOBS)
    found = await context.client.runs.list_retries(
        tenant=query.get("tenant") or None,
        pipeline=wanted.pipeline,
        queue=wanted.queue,
        step=wanted.step,
        code=wanted.code,
        limit=PAGE_SIZE + 1,
    )
    return context.render(
        "retries.html",
        retries=found[:PAGE_SIZE],
        has_more=len(found) > PAGE_SIZE,
        query=query,
        filtered=any(query.get(name) for name in ("tenant", "application", "pipeline", "queue", "step", "code")),
        now=await context.client.now(),
    )


async def retry_now(context: PageContext) -> Response:
    run, step, item = context.get_path_id("run"), context.fields.get("step", ""), context.fields.get("item", "")
    await context.client.runs.retry_now(run, step, item=item, by=context.by)
    return context.redirect("/retries", "retried_now")


async def show_dead_letters(context: PageContext) -> Response:
    client, query = context.client, context.query
    tenant, pipelines = query.get("tenant") or None, context.get_query_pipelines()
    runs = await client.runs.list(
        tenant=tenant,
        pipeline=pipelines,
        states=FAILED,
        limit=MAX_FAILED_RUNS + 1,
        with_input=False,
    )
    dead = await client.webhooks.list_deliveries(
        states=[DeliveryState.DEAD], tenant=tenant, pipeline=pipelines, limit=PAGE_SIZE + 1
    )
    return context.render(
        "dead_letters.html",
        failed=[await _load_error(context, run) for run in runs[:MAX_FAILED_RUNS]],
        has_more_failed=len(runs) > MAX_FAILED_RUNS,
        deliveries=[mask_url(each) for each in dead[:PAGE_SIZE]],
        has_more_deliveries=len(dead) > PAGE_SIZE,
        query=query,
        filtered=any(query.get(name) for name in ("tenant", "application", "pipeline")),
        now=await client.now(),
    )


async def _load_error(context: PageContext, run: Run) -> FailedRun:
    found = await context.client.runs.get_errors(run.id, limit=1, with_stack=False)
    for (step, item), error in found.items():
        return FailedRun(run, step, item, error)
    return FailedRun(run, "", "", None)


PAGES = (
    Page("/retries", show_retries),
    Page("/runs/{run}/retry-now", submit=retry_now, submit_scope="runs:write"),
    Page("/dead-letters", show_dead_letters, scope="deliveries:read"),
)
