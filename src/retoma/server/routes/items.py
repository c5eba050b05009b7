"""Items of a run: how each of what a step gave stands, over all steps that go over it."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from retoma.errors import NotFound
from retoma.records import Run
from retoma.server.callers import Caller, caller
from retoma.server.problems import documented
from retoma.server.routes.runs import own
from retoma.server.shapes import LARGEST_INT, ItemPage, ItemShape, Limit, Name
from retoma.server.views import shown, sources
from retoma.states import JobState

router = APIRouter(tags=["runs"])
Reader = Annotated[Caller, caller("runs:read")]
After = Annotated[int, Query(ge=-1, le=LARGEST_INT, description="`next` of the page before.")]


@router.get("/runs/{run:uuid}/items", summary="The items of a run, in their order", responses=documented(404))
async def list_items(
    run: UUID,
    by: Reader,
    source: Annotated[Name | None, Query(description="The step that gave them; may be left out if it is one.")] = None,
    state: Annotated[list[JobState] | None, Query(description="In one of these states.")] = None,
    search: Annotated[Name | None, Query(description="With this in their key, in either case.")] = None,
    after: After = -1,
    limit: Annotated[Limit, Query()] = 100,
) -> ItemPage:
    of = await _source(by, await own(by, run), source)
    found = await by.client.items(run, of, states=state, search=search, after=after, limit=limit + 1)
    page = found[:limit]
    return ItemPage(
        items=[ItemShape(**{**vars(item), "error": shown(by, item.error)}) for item in page],
        next=page[-1].position if len(found) > limit else None,
    )


async def _source(by: Caller, run: Run, asked: str | None) -> str:
    given = sources(await by.client.graph(run))
    if asked in given:
        return asked
    if asked is None and len(given) == 1:
        return given[0]
    names = ", ".join(given)
    raise NotFound(f"name the step that gave the items as `source`: {names}" if given else f"run {run.id} has no items")
