"""The list of runs, with its filters in the query."""

from __future__ import annotations

from datetime import UTC, date, datetime
from uuid import UUID

from starlette.responses import Response

from retoma.errors import NotFound
from retoma.records import Run
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.states import RunState

PAGE_SIZE = 50


async def show_runs(context: PageContext) -> Response:
    asked = context.query
    found = await _find_runs(context, asked["q"]) if asked.get("q") else await _list_runs(context)
    return context.render(
        "runs.html",
        runs=found[:PAGE_SIZE],
        next=found[PAGE_SIZE - 1].id if len(found) > PAGE_SIZE else None,
        states=list(RunState),
        pipelines=[] if context.client.app is None else sorted(context.client.app.pipelines),
        query=asked,
        filtered=any(asked.get(name) for name in ("q", "state", "pipeline", "tenant", "since", "before")),
        now=await context.client.now(),
    )


async def _list_runs(context: PageContext) -> list[Run]:
    asked = context.query
    state = context.get_query_choice("state", RunState)
    return await context.client.runs.list(
        tenant=asked.get("tenant") or None,
        pipeline=asked.get("pipeline") or None,
        states=[state] if state else None,
        before=_parse_id(asked.get("before", "")),
        since=_parse_day(asked.get("since", "")),
        limit=PAGE_SIZE + 1,
        with_input=False,
    )


async def _find_runs(context: PageContext, text: str) -> list[Run]:
    """Return those whose ids start with this text, then those whose titles contain it."""
    client = context.client
    found = [*await client.runs.find(text, limit=PAGE_SIZE), *await client.runs.find_by_title(text, limit=PAGE_SIZE)]
    return [await client.runs.get(run, with_input=False) for run in list(dict.fromkeys(found))[:PAGE_SIZE]]


def _parse_id(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise NotFound("this page of the list does not exist") from None


def _parse_day(text: str) -> datetime | None:
    """Return the start of a day in UTC, as the label of the field says."""
    try:
        return datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC) if text else None
    except ValueError:
        raise NotFound("`since` must be a day, such as 2030-01-31") from None


PAGES = (Page("/runs", show_runs),)
