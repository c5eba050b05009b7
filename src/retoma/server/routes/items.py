"""Items of a run: the status of each item across all steps that process it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from retoma.errors import NotFound
from retoma.records import Run
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.routes.runs import get_own_run
from retoma.server.schemas import MAX_INT, ItemPage, Limit, Name
from retoma.server.serializers import list_item_sources, redact_stacks
from retoma.states import JobState

router = APIRouter(tags=["runs"])
Reader = Annotated[Principal, require_scope("runs:read")]
After = Annotated[int, Query(ge=-1, le=MAX_INT, description="`next` of the previous page.")]


@router.get("/runs/{run:uuid}/items", summary="List the items of a run, in order", responses=document_problems(404))
async def list_items(
    run: UUID,
    by: Reader,
    source: Annotated[
        Name | None, Query(description="The step that returned the items. Optional if there is only one.")
    ] = None,
    state: Annotated[list[JobState] | None, Query(description="Only items in one of these states.")] = None,
    search: Annotated[
        Name | None, Query(description="Only items with this text in their key, case-insensitive.")
    ] = None,
    after: After = -1,
    limit: Annotated[Limit, Query()] = 100,
) -> ItemPage:
    step = await _resolve_source(by, await get_own_run(by, run), source)
    found = await by.client.runs.list_items(run, step, states=state, search=search, after=after, limit=limit + 1)
    page = found[:limit]
    return ItemPage(
        items=[replace(item, error=redact_stacks(by, item.error)) for item in page],
        next=page[-1].position if len(found) > limit else None,
    )


async def _resolve_source(by: Principal, run: Run, requested: str | None) -> str:
    sources = list_item_sources(await by.client.runs.get_graph(run))
    if requested in sources:
        return requested
    if requested is None and len(sources) == 1:
        return sources[0]
    if not sources:
        raise NotFound(f"run {run.id} has no items")
    raise NotFound(f"set `source` to the step that returned the items: {', '.join(sources)}")
