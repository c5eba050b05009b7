"""Actions on runs: resume, rerun, edit, skip and fork, and resolving orphans."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from retoma.errors import InvalidInput, NotFound
from retoma.records import Orphan, OrphanResolution, Revision
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.routes.runs import get_own_run
from retoma.server.schemas import (
    MAX_INT,
    ItemKey,
    Limit,
    Name,
    Notes,
    OrphanPage,
    RequestBody,
    ResumedRun,
    StaleJob,
    StaleList,
    StartedRun,
    StepRevisionList,
    StuckRunPage,
    idempotency_key_header,
)
from retoma.server.serializers import redact_stacks, to_started_response

router = APIRouter(tags=["actions"])
Reader = Annotated[Principal, require_scope("runs:read")]
Writer = Annotated[Principal, require_scope("runs:write")]
IdempotencyKey = Annotated[
    str | None, idempotency_key_header("Repeating the action with the same key has no further effect.")
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
    "if": {"anyOf": [{"required": [name], "properties": {name: schema}} for name, schema in _SELECTORS.items()]},
    "then": {"properties": {"step": {"type": "null"}}},
    "else": {"properties": {"downstream": {"const": True}, "reuse": {"const": True}}},
}


class RerunRequest(RequestBody):
    """Select work to rerun with `steps`, `group`, `from_step` or `stale`. Without any, rerun failed jobs."""

    model_config = ConfigDict(json_schema_extra=_SELECTED_OR_FAILED_SCHEMA)  # type: ignore[typeddict-item]

    step: Name | None = Field(None, description="Rerun only the failed jobs of this step.")
    items: list[ItemKey] | None = Field(None, max_length=MAX_ITEMS, description="Rerun only these items.")
    steps: list[Name] = Field([], max_length=MAX_STEPS, description="Rerun these steps and their dependents.")
    group: Name | None = Field(None, description="Rerun the steps of this group.")
    from_step: Name | None = Field(
        None, description="Rerun this step and all of its dependents, even if its result is the same."
    )
    stale: bool = Field(False, description="Rerun the results that were computed from outdated inputs.")
    downstream: bool = Field(True, description="False keeps the dependents as they are and marks them as stale.")
    reuse: bool = Field(True, description="False reruns the dependents even if their inputs are the same.")
    reason: Notes | None = None

    @property
    def selects_work(self) -> bool:
        return bool(self.steps or self.group or self.from_step or self.stale)


class EditRequest(RequestBody):
    step: Name
    item: str = Field("", max_length=500, pattern=r"^[^\x00]*$")
    value: Any = Field(description="The new result, of the type that the step returns.")
    downstream: bool = Field(True, description="False keeps the dependents as they are and marks them as stale.")


class ForkRequest(RequestBody):
    input: dict[str, Any] = Field({}, description="The input fields to change. The others keep their values.")


class SkipRequest(RequestBody):
    step: Name
    items: list[ItemKey] = Field(min_length=1, max_length=MAX_ITEMS)


class OrphanRequest(RequestBody):
    step: Name
    effect: Name
    resolution: OrphanResolution
    item: str = Field("", max_length=500, pattern=r"^[^\x00]*$")
    revision: int | None = Field(None, ge=1, le=MAX_INT, description="Default: the newest that is not resolved.")


class NewRevision(BaseModel):
    id: UUID
    revision: int
    jobs: int = Field(description="The number of jobs that were selected or created.")


@router.get("/stuck", summary="List stuck runs")
async def list_stuck_runs(by: Reader, limit: Annotated[Limit, Query()] = 100) -> StuckRunPage:
    found = await by.client.runs.list_stuck(limit=limit)
    return StuckRunPage(stuck=[replace(one, data=redact_stacks(by, one.data)) for one in found])


@router.get("/orphans", summary="List orphans that nobody has resolved, oldest first", responses=document_problems(404))
async def list_orphans(
    by: Reader,
    tenant: Annotated[Name | None, Query(description="Only this tenant.")] = None,
    after: Annotated[
        str | None, Query(min_length=1, max_length=10_000, description="`next` of the previous page.")
    ] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> OrphanPage:
    found = await by.client.runs.list_orphans(tenant=tenant, after=after, limit=limit + 1)
    page = found[:limit]
    return OrphanPage(orphans=page, next=page[-1].cursor if len(found) > limit else None)


@router.post("/runs/{run:uuid}/resume", summary="Resume a stuck or failed run", responses=_ERRORS)
async def resume_run(run: UUID, by: Writer, key: IdempotencyKey = None) -> ResumedRun:
    await get_own_run(by, run)

    async def resume(_: str | None) -> dict[str, Any]:
        # Pass the caller's key on: it must not be accepted for another action on this run, nor for a second resume.
        state = await by.client.runs.resume(run, by=by.author, key=key)
        missing = await by.client.runs.find_missing_worker(run)
        return {"state": state, "note": missing and missing.explanation}

    return ResumedRun(id=run, **await by.client.runs.get_or_record_answer(run, key, "resume", resume))


@router.post("/runs/{run:uuid}/rerun", summary="Rerun failed jobs or selected steps", responses=_ERRORS)
async def rerun_steps(run: UUID, body: RerunRequest, by: Writer, key: IdempotencyKey = None) -> NewRevision:
    await get_own_run(by, run)
    rerun = _rerun_selected if body.selects_work else _rerun_failed
    return _to_response(run, await rerun(run, body, by, key))


async def _rerun_selected(run: UUID, body: RerunRequest, by: Principal, key: str | None) -> Revision:
    if body.step is not None:
        raise InvalidInput("`step` selects failed jobs: use `steps` to name the steps to rerun")
    options = body.model_dump(exclude={"step", "steps"})
    return await by.client.runs.rerun(run, *body.steps, **options, by=by.author, key=key)


async def _rerun_failed(run: UUID, body: RerunRequest, by: Principal, key: str | None) -> Revision:
    if not (body.downstream and body.reuse):
        raise InvalidInput("`downstream` and `reuse` do not apply to failed jobs: name the steps to rerun in `steps`")
    return await by.client.runs.rerun_failed(run, step=body.step, items=body.items, by=by.author, key=key)


@router.post(
    "/runs/{run:uuid}/fork",
    status_code=202,
    summary="Fork a finished run: start a run with changed inputs that reuses its results",
    response_model=StartedRun,
    responses={
        200: {"description": "The key was used before: this is the existing run.", "model": StartedRun},
        **_ERRORS,
    },
)
async def fork_run(run: UUID, body: ForkRequest, by: Writer, key: IdempotencyKey = None) -> Response:
    return to_started_response(await by.client.runs.fork(run, body.input, by=by.author, key=key))


@router.get("/runs/{run:uuid}/stale", summary="List stale results", responses=document_problems(404))
async def list_stale_results(run: UUID, by: Reader) -> StaleList:
    await get_own_run(by, run)
    return StaleList(stale=[StaleJob(step=step, item=item) for step, item in await by.client.runs.list_stale(run)])


@router.get(
    "/runs/{run:uuid}/steps/{step}/revisions",
    summary="List the revisions of a step's or item's result, newest first",
    responses=document_problems(404),
)
async def list_step_revisions(
    run: UUID,
    step: Annotated[Name, Path()],
    by: Reader,
    item: Annotated[ItemKey, Query(description="The item, if the step runs once per item.")] = "",
    limit: Annotated[Limit, Query()] = 50,
) -> StepRevisionList:
    names = (await by.client.runs.get_graph(await get_own_run(by, run))).names
    if step not in names:
        raise NotFound(f"run {run} has no step {step!r}; it has {', '.join(names)}")
    return StepRevisionList(revisions=await by.client.runs.get_step_history(run, step, item, limit=limit))


@router.post("/runs/{run:uuid}/edit", summary="Replace the result of a job", responses=_ERRORS)
async def edit_result(run: UUID, body: EditRequest, by: Writer, key: IdempotencyKey = None) -> NewRevision:
    revision = await by.client.runs.edit(run, **body.model_dump(), by=by.author, key=key)
    return _to_response(run, revision)


@router.post("/runs/{run:uuid}/skip", summary="Skip items of a finished run", responses=_ERRORS)
async def skip_items(run: UUID, body: SkipRequest, by: Writer, key: IdempotencyKey = None) -> NewRevision:
    revision = await by.client.runs.skip(run, body.step, body.items, by=by.author, key=key)
    return _to_response(run, revision)


@router.post("/runs/{run:uuid}/orphans/resolve", summary="Record what became of an orphan", responses=_ERRORS)
async def resolve_orphan(run: UUID, body: OrphanRequest, by: Writer) -> Orphan:
    """Repeating it changes nothing. An orphan that somebody resolved in another way is a conflict."""
    return await by.client.runs.resolve_orphan(run, **body.model_dump(), by=by.author)


def _to_response(run: UUID, revision: Revision) -> NewRevision:
    return NewRevision(id=run, revision=revision.number, jobs=revision.jobs)
