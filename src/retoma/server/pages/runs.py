"""The list of runs, with its filters in the address."""

from __future__ import annotations

from datetime import UTC, date, datetime
from uuid import UUID

from starlette.responses import Response

from retoma.errors import NotFound
from retoma.records import Run
from retoma.server.pages.page import Page
from retoma.server.pages.visit import Visit
from retoma.states import RunState

SIZE = 50


async def show(visit: Visit) -> Response:
    asked = visit.asked
    found = await _named(visit, asked["q"]) if asked.get("q") else await _listed(visit)
    return visit.show(
        "runs.html",
        runs=found[:SIZE],
        next=found[SIZE - 1].id if len(found) > SIZE else None,
        states=list(RunState),
        pipelines=[] if visit.client.app is None else sorted(visit.client.app.pipelines),
        asked=asked,
        filtered=any(asked.get(name) for name in ("q", "state", "pipeline", "tenant", "since", "before")),
        now=await visit.client.now(),
    )


async def _listed(visit: Visit) -> list[Run]:
    asked = visit.asked
    state = visit.choice("state", RunState)
    return await visit.client.runs(
        tenant=asked.get("tenant") or None,
        pipeline=asked.get("pipeline") or None,
        states=[state] if state else None,
        before=_id(asked.get("before", "")),
        since=_day(asked.get("since", "")),
        limit=SIZE + 1,
        with_input=False,
    )


async def _named(visit: Visit, text: str) -> list[Run]:
    """Those whose ids begin like this."""
    return [await visit.client.show(run, with_input=False) for run in await visit.client.find(text, limit=SIZE)]


def _id(given: str) -> UUID | None:
    try:
        return UUID(given) if given else None
    except ValueError:
        raise NotFound("there is no such page of the list") from None


def _day(given: str) -> datetime | None:
    """Return the first moment of a day, in UTC as all times of the pages."""
    try:
        return datetime.combine(date.fromisoformat(given), datetime.min.time(), UTC) if given else None
    except ValueError:
        raise NotFound("`since` is a day, as 2030-01-31") from None


PAGES = (Page("/runs", show),)
