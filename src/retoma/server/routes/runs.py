"""Start, list, get and cancel runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Query
from pydantic import AwareDatetime
from starlette.responses import Response

from retoma.define.webhook import Webhook
from retoma.errors import Conflict
from retoma.records import Run
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.schemas import (
    MAX_BIGINT,
    Before,
    BulkStartRequest,
    EventPage,
    Limit,
    Name,
    RunDetails,
    RunPage,
    RunStatus,
    StartedRun,
    StartedRuns,
    StartRequest,
    WebhookRequest,
    idempotency_key_header,
)
from retoma.server.serializers import STARTED_RESPONSES, get_run_details, redact_stacks, to_started_response
from retoma.states import RunState

router = APIRouter(prefix="/runs", tags=["runs"])
Reader = Annotated[Principal, require_scope("runs:read")]
Writer = Annotated[Principal, require_scope("runs:write")]
ActionKey = Annotated[
    str | None, idempotency_key_header("Repeating the action with the same key returns the same response.")
]
IdempotencyKey = Annotated[
    str | None, idempotency_key_header("Repeating the request with the same key and input returns the same run.")
]
_NOT_FOUND = document_problems(404)


@router.post(
    "",
    status_code=202,
    summary="Start a run",
    response_model=StartedRun,
    responses=STARTED_RESPONSES | _NOT_FOUND,
)
async def start_run(body: StartRequest, by: Writer, key: IdempotencyKey = None) -> Response:
    started = await by.client.start(
        _check_startable(by, body.pipeline),
        body.input,
        tenant=by.choose_tenant(body.tenant),
        key=key,
        run_at=body.run_at,
        priority=body.priority,
        webhook=_build_webhook(body.webhook),
    )
    return to_started_response(started)


@router.post(
    "/bulk",
    status_code=202,
    summary="Start many runs of one pipeline",
    response_model=StartedRuns,
    responses={
        202: {"description": "All runs are committed."},
        200: {"description": "The key was used before: these are the existing runs.", "model": StartedRuns},
        **_NOT_FOUND,
    },
)
async def start_runs(body: BulkStartRequest, by: Writer, key: IdempotencyKey = None) -> Response:
    started = await by.client.start_many(
        _check_startable(by, body.pipeline),
        body.inputs,
        tenant=by.choose_tenant(body.tenant),
        key=key,
        priority=body.priority,
        webhook=_build_webhook(body.webhook),
    )
    created = any(run.created for run in started)
    return _json_response({"runs": [run.id for run in started]}, 202 if created else 200)


@router.get("", summary="List runs, newest first")
async def list_runs(
    by: Reader,
    state: Annotated[list[RunState] | None, Query(description="Only runs in one of these states.")] = None,
    pipeline: Annotated[Name | None, Query(description="Only runs of this pipeline.")] = None,
    tenant: Annotated[Name | None, Query(description="Only this tenant.")] = None,
    parent: Annotated[UUID | None, Query(description="Only the child runs of this run.")] = None,
    title: Annotated[
        Name | None,
        Query(
            description="Only runs whose titles contain this text. Case does not matter. "
            "A text that begins within a word is found only in the newest 10,000 runs."
        ),
    ] = None,
    since: Annotated[AwareDatetime | None, Query(description="Only runs created at or after this time.")] = None,
    before: Annotated[Before, Query()] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> RunPage:
    found = await by.client.runs.list(
        tenant=tenant,
        pipeline=pipeline,
        states=state,
        parent=parent,
        title=title,
        before=before,
        since=since,
        limit=limit + 1,
        with_input=False,
    )
    page = found[:limit]
    return RunPage(runs=list(page), next=page[-1].id if len(found) > limit else None)


@router.get(
    "/{run:uuid}", summary="Get a run with its progress, errors and the reasons for waiting", responses=_NOT_FOUND
)
async def get_run(run: UUID, by: Reader) -> RunDetails:
    return await get_run_details(by, await get_own_run(by, run))


@router.get("/{run:uuid}/events", summary="List the events of a run, in order", responses=_NOT_FOUND)
async def list_run_events(
    run: UUID,
    by: Reader,
    after: Annotated[int, Query(ge=0, le=MAX_BIGINT, description="Only events after this one.")] = 0,
    limit: Annotated[Limit, Query()] = 100,
) -> EventPage:
    await get_own_run(by, run)
    found = await by.client.runs.list_events(run, after=after, limit=limit + 1)
    page = found[:limit]
    return EventPage(
        events=[replace(event, data=redact_stacks(by, event.data)) for event in page],
        next=page[-1].id if len(found) > limit else None,
    )


@router.get(
    "/{run:uuid}/results",
    summary="Get the current results by step; for an `each` step, by item",
    response_model=dict[str, Any],
    responses=_NOT_FOUND,
)
async def get_run_results(run: UUID, by: Reader) -> Response:
    await get_own_run(by, run)
    return _json_response(await by.client.runs.get_results(run), 200)


@router.post(
    "/{run:uuid}/cancel",
    summary="Cancel a run: running jobs are asked to stop, no new ones start",
    responses=_NOT_FOUND,
)
async def cancel_run(run: UUID, by: Writer, key: ActionKey = None) -> RunStatus:
    state = await by.client.runs.cancel(run, by=by.author, key=key)
    return RunStatus(id=run, state=state)


async def get_own_run(by: Principal, run: UUID) -> Run:
    """Return the run, or raise NotFound if it does not exist or belongs to another tenant."""
    return await by.client.runs.get(run)


def _check_startable(by: Principal, pipeline: str) -> str:
    """Return the pipeline. Raise Conflict if only a rejection starts it: its input says who rejected what."""
    pipelines = () if by.client.app is None else by.client.app.pipelines.values()
    if any(each.on_rejected is not None and each.on_rejected.name == pipeline for each in pipelines):
        raise Conflict(f"a run of {pipeline!r} cannot be started: it follows when another run is rejected")
    return pipeline


def _build_webhook(body: WebhookRequest | None) -> Webhook | None:
    return None if body is None else Webhook(body.url, tuple(body.events), body.schedule, body.retries)


def _json_response(body: object, status: int) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
