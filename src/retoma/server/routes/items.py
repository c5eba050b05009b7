"""Items of a run: how each of what a step gave stands, over all steps that go over it."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from retoma.errors import NotFound
from retoma.records import Run
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.routes.runs import get_own_run
from retoma.server.schemas import MAX_INT, ItemPage, ItemSchema, Limit, Name
from retoma.server.serializers import list_item_sources, redact_stacks
from retoma.states import JobState

router = APIRouter(tags=["runs"])
Reader = Annotated[Principal, require_scope("runs:read")]
After = Annotated[int, Query(ge=-1, le=MAX_INT, description="`next` of the page before.")]


@router.get("/runs/{run:uuid}/items", summary="The items of a run, in their order", responses=document_problems(404))
async def list_items(
    run: UUID,
    by: Reader,
    source: Annotated[Name | None, Query(description="The step that gave them; may be left out if it is one.")] = None,
    state: Annotated[list[JobState] | None, Query(description="In one of these states.")] = None,
    search: Annotated[Name | None, Query(description="With this in their key, in either case.")] = None,
    after: After = -1,
    limit: Annotated[Limit, Query()] = 100,
) -> ItemPage:
    of = await _resolve_source(by, await get_own_run(by, run), source)
    found = await by.client.runs.list_items(run, of, states=state, search=search, after=after, limit=limit + 1)
    page = found[:limit]
    return ItemPage(
        items=[ItemSchema(**{**vars(item), "error": redact_stacks(by, item.error)}) for item in page],
        next=page[-1].position if len(found) > limit else None,
    )


async def _resolve_source(by: Principal, run: Run, requested: str | None) -> str:
    given = list_item_sources(await by.client.runs.get_graph(run))
    if requested in given:
        return requested
    if requested is None and len(given) == 1:
        return given[0]
    names = ", ".join(given)
    raise NotFound(f"name the step that gave the items as `source`: {names}" if given else f"run {run.id} has no items")
