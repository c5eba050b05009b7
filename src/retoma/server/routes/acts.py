"""Acts of people: let a run go on, make anew what failed, put a result right, leave items out."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from retoma.records import Revision, Stuck
from retoma.server.callers import Caller, caller
from retoma.server.problems import documented
from retoma.server.shapes import Cancelled, Given, ItemKey, Limit, Name, StuckPage, StuckShape

router = APIRouter(tags=["acts"])
Reader = Annotated[Caller, caller("runs:read")]
Writer = Annotated[Caller, caller("runs:write")]
_REFUSED = documented(404, 409)
MOST_ITEMS = 10_000


class RerunGiven(Given):
    step: Name | None = Field(None, description="Only what failed of this step.")
    items: list[ItemKey] | None = Field(None, max_length=MOST_ITEMS, description="Only these items of it.")


class EditGiven(Given):
    step: Name
    item: str = Field("", max_length=500, pattern=r"^[^\x00]*$")
    value: Any = Field(description="The result, as the step would give it.")


class SkipGiven(Given):
    step: Name
    items: list[ItemKey] = Field(min_length=1, max_length=MOST_ITEMS)


class Revised(BaseModel):
    id: UUID
    revision: int
    jobs: int = Field(description="How many were named, or begin now.")


@router.get("/stuck", summary="Runs that should go on and do not")
async def stuck(by: Reader, limit: Annotated[Limit, Query()] = 100) -> StuckPage:
    found = await by.client.stuck(tenant=by.tenant, limit=limit)
    return StuckPage(stuck=[_shape(one) for one in found])


@router.post("/runs/{run:uuid}/resume", summary="Let a run go on that is stuck or has failed", responses=_REFUSED)
async def resume(run: UUID, by: Writer) -> Cancelled:
    return Cancelled(id=run, state=await by.client.resume(run, tenant=by.tenant, by=_who(by)))


@router.post("/runs/{run:uuid}/rerun", summary="Make anew what failed in a run that is over", responses=_REFUSED)
async def rerun(run: UUID, given: RerunGiven, by: Writer) -> Revised:
    made = await by.client.rerun_failed(run, step=given.step, items=given.items, tenant=by.tenant, by=_who(by))
    return _revised(run, made)


@router.post("/runs/{run:uuid}/edit", summary="Put a result right in a run that is over", responses=_REFUSED)
async def edit(run: UUID, given: EditGiven, by: Writer) -> Revised:
    made = await by.client.edit(run, given.step, given.value, item=given.item, tenant=by.tenant, by=_who(by))
    return _revised(run, made)


@router.post("/runs/{run:uuid}/skip", summary="Leave items out of a run that is over", responses=_REFUSED)
async def skip(run: UUID, given: SkipGiven, by: Writer) -> Revised:
    return _revised(run, await by.client.skip(run, given.step, given.items, tenant=by.tenant, by=_who(by)))


def _who(by: Caller) -> str:
    return f"key {by.name}"


def _revised(run: UUID, made: Revision) -> Revised:
    return Revised(id=run, revision=made.number, jobs=made.jobs)


def _shape(stuck: Stuck) -> StuckShape:
    return StuckShape(**vars(stuck))
