"""Acts of people: let a run go on, make work anew, put a result right, leave items out, fork."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from retoma.errors import InvalidInput, NotFound
from retoma.records import Revision, Stuck
from retoma.server.callers import Caller, caller
from retoma.server.problems import documented
from retoma.server.routes.runs import own
from retoma.server.shapes import (
    Given,
    ItemKey,
    Limit,
    MadeList,
    MadeShape,
    Name,
    Notes,
    Resumed,
    StaleJob,
    StaleList,
    Started,
    StuckPage,
    StuckShape,
    idempotency_key,
)
from retoma.server.views import shown

router = APIRouter(tags=["acts"])
Reader = Annotated[Caller, caller("runs:read")]
Writer = Annotated[Caller, caller("runs:write")]
IdempotencyKey = Annotated[
    str | None, idempotency_key("The same act with the same key is done once, however often it is sent.")
]
_REFUSED = documented(404, 409)
MOST_ITEMS = 10_000
MOST_STEPS = 500
_NAMED_BY = {
    "steps": {"minItems": 1},
    "group": {"type": "string"},
    "after": {"type": "string"},
    "stale": {"const": True},
}
_NAMED_OR_FAILED = {
    "if": {"anyOf": [{"required": [name], "properties": {name: given}} for name, given in _NAMED_BY.items()]},
    "then": {"properties": {"step": {"type": "null"}}},
    "else": {"properties": {"alone": {"const": False}, "fresh": {"const": False}}},
}


class RerunGiven(Given):
    """What is to be made anew is named by `steps`, `group`, `after` or `stale`. Otherwise it is what failed."""

    model_config = ConfigDict(json_schema_extra=_NAMED_OR_FAILED)  # type: ignore[typeddict-item]

    step: Name | None = Field(None, description="Only what failed of this step.")
    items: list[ItemKey] | None = Field(None, max_length=MOST_ITEMS, description="Only these items.")
    steps: list[Name] = Field([], max_length=MOST_STEPS, description="These, and what depends on them.")
    group: Name | None = Field(None, description="The steps of this group.")
    after: Name | None = Field(None, description="This step and every one that depends on it, whatever comes out.")
    stale: bool = Field(False, description="What was made of something that is no longer current.")
    alone: bool = Field(False, description="What depends on it stays as it is, and is stale.")
    fresh: bool = Field(False, description="Nothing that depends on it keeps its result.")
    why: Notes | None = None

    @property
    def names_work(self) -> bool:
        return bool(self.steps or self.group or self.after or self.stale)


class EditGiven(Given):
    step: Name
    item: str = Field("", max_length=500, pattern=r"^[^\x00]*$")
    value: Any = Field(description="The result, as the step would give it.")
    and_continue: bool = Field(True, description="False: what depends on it stays as it is, and is stale.")


class ForkGiven(Given):
    input: dict[str, Any] = Field({}, description="The fields that are to be others; the rest is as it was.")


class SkipGiven(Given):
    step: Name
    items: list[ItemKey] = Field(min_length=1, max_length=MOST_ITEMS)


class Revised(BaseModel):
    id: UUID
    revision: int
    jobs: int = Field(description="How many were named, or begin now.")


@router.get("/stuck", summary="Runs that should go on and do not")
async def list_stuck_runs(by: Reader, limit: Annotated[Limit, Query()] = 100) -> StuckPage:
    found = await by.client.stuck(tenant=by.tenant, limit=limit)
    return StuckPage(stuck=[_shape(by, one) for one in found])


@router.post("/runs/{run:uuid}/resume", summary="Let a run go on that is stuck or has failed", responses=_REFUSED)
async def resume_run(run: UUID, by: Writer, key: IdempotencyKey = None) -> Resumed:
    await own(by, run)

    async def resume(_: str | None) -> dict[str, Any]:
        # With the caller's own key: the same key must not stand for another act on this run, nor for a second resume.
        state = await by.client.resume(run, tenant=by.tenant, by=_who(by), key=key)
        lacking = await by.client.lacks_worker(run)
        return {"state": state, "note": lacking and lacking.why}

    return Resumed(id=run, **await by.client.first_answer(run, key, "resume", resume))


@router.post("/runs/{run:uuid}/rerun", summary="Make work anew: what failed, or what is named", responses=_REFUSED)
async def rerun_steps(run: UUID, given: RerunGiven, by: Writer, key: IdempotencyKey = None) -> Revised:
    await own(by, run)
    act = _made_anew if given.names_work else _what_failed
    return _revised(run, await act(run, given, by, key))


async def _made_anew(run: UUID, given: RerunGiven, by: Caller, key: str | None) -> Revision:
    if given.step is not None:
        raise InvalidInput("`step` is for what failed: name what is to be made anew in `steps`")
    asked = given.model_dump(exclude={"step", "steps"})
    return await by.client.rerun(run, *given.steps, **asked, tenant=by.tenant, by=_who(by), key=key)


async def _what_failed(run: UUID, given: RerunGiven, by: Caller, key: str | None) -> Revision:
    if given.alone or given.fresh:
        raise InvalidInput("say in `steps` what is to be made anew `alone` or `fresh`")
    return await by.client.rerun_failed(run, step=given.step, items=given.items, tenant=by.tenant, by=_who(by), key=key)


@router.post(
    "/runs/{run:uuid}/fork",
    status_code=202,
    summary="Start a run with a changed input that shares the results of one that is over",
    responses={200: {"description": "This key was used before; it is the same run.", "model": Started}, **_REFUSED},
)
async def fork_run(run: UUID, given: ForkGiven, by: Writer, answer: Response, key: IdempotencyKey = None) -> Started:
    started = await by.client.fork(run, given.input, tenant=by.tenant, by=_who(by), key=key)
    answer.status_code = 202 if started.created else 200
    answer.headers["Location"] = f"/api/v1/runs/{started.id}"
    return Started(id=started.id, created=started.created)


@router.get("/runs/{run:uuid}/stale", summary="Results that are no longer current", responses=documented(404))
async def list_stale_results(run: UUID, by: Reader) -> StaleList:
    await own(by, run)
    return StaleList(stale=[StaleJob(step=step, item=item) for step, item in await by.client.stale(run)])


@router.get(
    "/runs/{run:uuid}/steps/{step}/revisions",
    summary="Every revision of a step's result, or of one item's, the newest first",
    responses=documented(404),
)
async def list_step_revisions(
    run: UUID,
    step: Annotated[Name, Path()],
    by: Reader,
    item: Annotated[ItemKey, Query()] = "",
    limit: Annotated[Limit, Query()] = 50,
) -> MadeList:
    names = (await by.client.graph(await own(by, run))).names
    if step not in names:
        raise NotFound(f"run {run} has no step {step!r}; it has {', '.join(names)}")
    found = await by.client.made(run, step, item, limit=limit)
    return MadeList(revisions=[MadeShape(**vars(one)) for one in found])


@router.post("/runs/{run:uuid}/edit", summary="Put a person's result in place of a job's", responses=_REFUSED)
async def edit_result(run: UUID, given: EditGiven, by: Writer, key: IdempotencyKey = None) -> Revised:
    made = await by.client.edit(
        run,
        given.step,
        given.value,
        item=given.item,
        and_continue=given.and_continue,
        tenant=by.tenant,
        by=_who(by),
        key=key,
    )
    return _revised(run, made)


@router.post("/runs/{run:uuid}/skip", summary="Leave items out of a run that is over", responses=_REFUSED)
async def skip_items(run: UUID, given: SkipGiven, by: Writer, key: IdempotencyKey = None) -> Revised:
    made = await by.client.skip(run, given.step, given.items, tenant=by.tenant, by=_who(by), key=key)
    return _revised(run, made)


def _who(by: Caller) -> str:
    return f"key {by.name}"


def _revised(run: UUID, made: Revision) -> Revised:
    return Revised(id=run, revision=made.number, jobs=made.jobs)


def _shape(by: Caller, stuck: Stuck) -> StuckShape:
    return StuckShape(**vars(stuck) | {"data": shown(by, stuck.data)})
