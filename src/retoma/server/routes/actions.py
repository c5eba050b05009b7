"""Acts of people: let a run go on, make work anew, put a result right, leave items out, fork."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from retoma.errors import InvalidInput, NotFound
from retoma.records import Revision, Stuck
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.routes.runs import get_own_run
from retoma.server.schemas import (
    ItemKey,
    Limit,
    Name,
    Notes,
    RequestBody,
    ResumedRun,
    StaleJob,
    StaleList,
    StartedRun,
    StepRevisionList,
    StepRevisionSchema,
    StuckRunPage,
    StuckRunSchema,
    idempotency_key_header,
)
from retoma.server.serializers import redact_stacks

router = APIRouter(tags=["actions"])
Reader = Annotated[Principal, require_scope("runs:read")]
Writer = Annotated[Principal, require_scope("runs:write")]
IdempotencyKey = Annotated[
    str | None, idempotency_key_header("The same act with the same key is done once, however often it is sent.")
]
_ERRORS = document_problems(404, 409)
MAX_ITEMS = 10_000
MAX_STEPS = 500
_SELECTORS = {
    "steps": {"minItems": 1},
    "group": {"type": "string"},
    "from_step": {"type": "string"},
    "stale": {"const": True},
}
_SELECTED_OR_FAILED_SCHEMA = {
    "if": {"anyOf": [{"required": [name], "properties": {name: given}} for name, given in _SELECTORS.items()]},
    "then": {"properties": {"step": {"type": "null"}}},
    "else": {"properties": {"downstream": {"const": True}, "reuse": {"const": True}}},
}


class RerunRequest(RequestBody):
    """What is to be made anew is named by `steps`, `group`, `from_step` or `stale`. Otherwise it is what failed."""

    model_config = ConfigDict(json_schema_extra=_SELECTED_OR_FAILED_SCHEMA)  # type: ignore[typeddict-item]

    step: Name | None = Field(None, description="Only what failed of this step.")
    items: list[ItemKey] | None = Field(None, max_length=MAX_ITEMS, description="Only these items.")
    steps: list[Name] = Field([], max_length=MAX_STEPS, description="These, and what depends on them.")
    group: Name | None = Field(None, description="The steps of this group.")
    from_step: Name | None = Field(None, description="This step and every one that depends on it, whatever comes out.")
    stale: bool = Field(False, description="What was made of something that is no longer current.")
    downstream: bool = Field(True, description="False: what depends on it stays as it is, and is stale.")
    reuse: bool = Field(True, description="False: nothing that depends on it keeps its result.")
    reason: Notes | None = None

    @property
    def selects_work(self) -> bool:
        return bool(self.steps or self.group or self.from_step or self.stale)


class EditRequest(RequestBody):
    step: Name
    item: str = Field("", max_length=500, pattern=r"^[^\x00]*$")
    value: Any = Field(description="The result, as the step would give it.")
    rerun_dependents: bool = Field(True, description="False: what depends on it stays as it is, and is stale.")


class ForkRequest(RequestBody):
    input: dict[str, Any] = Field({}, description="The fields that are to be others; the rest is as it was.")


class SkipRequest(RequestBody):
    step: Name
    items: list[ItemKey] = Field(min_length=1, max_length=MAX_ITEMS)


class RevisionSchema(BaseModel):
    id: UUID
    revision: int
    jobs: int = Field(description="How many were named, or begin now.")


@router.get("/stuck", summary="Runs that should go on and do not")
async def list_stuck_runs(by: Reader, limit: Annotated[Limit, Query()] = 100) -> StuckRunPage:
    found = await by.client.runs.list_stuck(tenant=by.tenant, limit=limit)
    return StuckRunPage(stuck=[_serialize_stuck_run(by, one) for one in found])


@router.post("/runs/{run:uuid}/resume", summary="Let a run go on that is stuck or has failed", responses=_ERRORS)
async def resume_run(run: UUID, by: Writer, key: IdempotencyKey = None) -> ResumedRun:
    await get_own_run(by, run)

    async def resume(_: str | None) -> dict[str, Any]:
        # With the caller's own key: the same key must not stand for another act on this run, nor for a second resume.
        state = await by.client.runs.resume(run, tenant=by.tenant, by=_author(by), key=key)
        lacking = await by.client.runs.find_missing_worker(run)
        return {"state": state, "note": lacking and lacking.explanation}

    return ResumedRun(id=run, **await by.client.runs.get_or_record_answer(run, key, "resume", resume))


@router.post("/runs/{run:uuid}/rerun", summary="Make work anew: what failed, or what is named", responses=_ERRORS)
async def rerun_steps(run: UUID, body: RerunRequest, by: Writer, key: IdempotencyKey = None) -> RevisionSchema:
    await get_own_run(by, run)
    act = _rerun_selected if body.selects_work else _rerun_failed
    return _serialize_revision(run, await act(run, body, by, key))


async def _rerun_selected(run: UUID, body: RerunRequest, by: Principal, key: str | None) -> Revision:
    if body.step is not None:
        raise InvalidInput("`step` is for what failed: name what is to be made anew in `steps`")
    asked = body.model_dump(exclude={"step", "steps"})
    return await by.client.runs.rerun(run, *body.steps, **asked, tenant=by.tenant, by=_author(by), key=key)


async def _rerun_failed(run: UUID, body: RerunRequest, by: Principal, key: str | None) -> Revision:
    if not (body.downstream and body.reuse):
        raise InvalidInput("say in `steps` what is to be rerun with `downstream` or `reuse` false")
    return await by.client.runs.rerun_failed(
        run, step=body.step, items=body.items, tenant=by.tenant, by=_author(by), key=key
    )


@router.post(
    "/runs/{run:uuid}/fork",
    status_code=202,
    summary="Start a run with a changed input that shares the results of one that is over",
    responses={200: {"description": "This key was used before; it is the same run.", "model": StartedRun}, **_ERRORS},
)
async def fork_run(
    run: UUID, body: ForkRequest, by: Writer, response: Response, key: IdempotencyKey = None
) -> StartedRun:
    started = await by.client.runs.fork(run, body.input, tenant=by.tenant, by=_author(by), key=key)
    response.status_code = 202 if started.created else 200
    response.headers["Location"] = f"/api/v1/runs/{started.id}"
    return StartedRun(id=started.id, created=started.created)


@router.get("/runs/{run:uuid}/stale", summary="Results that are no longer current", responses=document_problems(404))
async def list_stale_results(run: UUID, by: Reader) -> StaleList:
    await get_own_run(by, run)
    return StaleList(stale=[StaleJob(step=step, item=item) for step, item in await by.client.runs.list_stale(run)])


@router.get(
    "/runs/{run:uuid}/steps/{step}/revisions",
    summary="Every revision of a step's result, or of one item's, the newest first",
    responses=document_problems(404),
)
async def list_step_revisions(
    run: UUID,
    step: Annotated[Name, Path()],
    by: Reader,
    item: Annotated[ItemKey, Query()] = "",
    limit: Annotated[Limit, Query()] = 50,
) -> StepRevisionList:
    names = (await by.client.runs.get_graph(await get_own_run(by, run))).names
    if step not in names:
        raise NotFound(f"run {run} has no step {step!r}; it has {', '.join(names)}")
    found = await by.client.runs.get_step_history(run, step, item, limit=limit)
    return StepRevisionList(revisions=[StepRevisionSchema(**vars(one)) for one in found])


@router.post("/runs/{run:uuid}/edit", summary="Put a person's result in place of a job's", responses=_ERRORS)
async def edit_result(run: UUID, body: EditRequest, by: Writer, key: IdempotencyKey = None) -> RevisionSchema:
    made = await by.client.runs.edit(
        run,
        body.step,
        body.value,
        item=body.item,
        rerun_dependents=body.rerun_dependents,
        tenant=by.tenant,
        by=_author(by),
        key=key,
    )
    return _serialize_revision(run, made)


@router.post("/runs/{run:uuid}/skip", summary="Leave items out of a run that is over", responses=_ERRORS)
async def skip_items(run: UUID, body: SkipRequest, by: Writer, key: IdempotencyKey = None) -> RevisionSchema:
    made = await by.client.runs.skip(run, body.step, body.items, tenant=by.tenant, by=_author(by), key=key)
    return _serialize_revision(run, made)


def _author(by: Principal) -> str:
    return f"key {by.name}"


def _serialize_revision(run: UUID, made: Revision) -> RevisionSchema:
    return RevisionSchema(id=run, revision=made.number, jobs=made.jobs)


def _serialize_stuck_run(by: Principal, stuck: Stuck) -> StuckRunSchema:
    return StuckRunSchema(**vars(stuck) | {"data": redact_stacks(by, stuck.data)})
