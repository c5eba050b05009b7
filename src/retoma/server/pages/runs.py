"""The list of runs, with its filters in the query."""

from __future__ import annotations

from starlette.responses import Response

from retoma.client.validation import is_name
from retoma.records import Run
from retoma.server.pages.bulk_actions import parse_day
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.states import RunState

PAGE_SIZE = 50


async def show_runs(context: PageContext) -> Response:
    query = context.query
    text = query.get("q", "").strip()
    found = await _find_runs(context, text) if text else await _list_runs(context)
    return context.render(
        "runs.html",
        runs=found[:PAGE_SIZE],
        next=found[PAGE_SIZE - 1].id if len(found) > PAGE_SIZE else None,
        states=list(RunState),
        pipelines=[] if context.client.app is None else sorted(context.client.app.pipelines),
        tenants=await context.client.tenants.list_names(),
        query=query,
        parent=await _find_parent(context),
        filtered=any(
            query.get(name) for name in ("q", "state", "application", "pipeline", "tenant", "parent", "since", "before")
        ),
        now=await context.client.now(),
    )


async def _list_runs(context: PageContext, title: str | None = None) -> list[Run]:
    query = context.query
    state = context.get_query_choice("state", RunState)
    return await context.client.runs.list(
        tenant=query.get("tenant") or None,
        pipeline=context.get_query_pipelines(),
        states=[state] if state else None,
        parent=context.get_query_id("parent"),
        title=title,
        before=context.get_query_id("before"),
        since=parse_day(query.get("since", ""), context.time_zone),
        limit=PAGE_SIZE + 1,
        with_input=False,
    )


async def _find_parent(context: PageContext) -> Run | None:
    """Return the run whose child runs are listed."""
    parent = context.get_query_id("parent")
    return None if parent is None else await context.client.runs.get(parent)


async def _find_runs(context: PageContext, text: str) -> list[Run]:
    """Return those whose ids start with this text, then those that the other filters allow and whose titles contain
    it."""
    client = context.client
    by_id = [] if "before" in context.query else await client.runs.find(text, limit=PAGE_SIZE)
    found = [await client.runs.get(run, with_input=False) for run in by_id]
    if is_name(text):
        found += [run for run in await _list_runs(context, text) if run.id not in by_id]
    return found


PAGES = (Page("/runs", show_runs),)
