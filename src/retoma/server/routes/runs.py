"""Runs: start, look, cancel."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Query
from pydantic import AwareDatetime
from starlette.responses import Response

from retoma.define.webhook import Webhook
from retoma.engine.tenants import DEFAULT
from retoma.records import Run
from retoma.server.callers import Caller, caller
from retoma.server.problems import Problem, documented
from retoma.server.shapes import (
    LARGEST_NUMBER,
    Before,
    BulkGiven,
    EventPage,
    EventShape,
    Limit,
    Name,
    RunDetails,
    RunPage,
    Started,
    StartedMany,
    StartGiven,
    StateOfRun,
    WebhookGiven,
    idempotency_key,
)
from retoma.server.views import details, shape, shown
from retoma.states import RunState

router = APIRouter(prefix="/runs", tags=["runs"])
Reader = Annotated[Caller, caller("runs:read")]
Writer = Annotated[Caller, caller("runs:write")]
ActKey = Annotated[str | None, idempotency_key("The same act with the same key gets the same answer.")]
IdempotencyKey = Annotated[
    str | None, idempotency_key("The same key and input give the same run, however often they are sent.")
]
_STARTED = {"Location": {"description": "Where the run is.", "schema": {"type": "string"}}}
_NOT_FOUND = documented(404)


@router.post(
    "",
    status_code=202,
    summary="Start a run",
    response_model=Started,
    responses={
        202: {"description": "It is committed and will reach its end.", "headers": _STARTED},
        200: {"description": "This key was used before; it is the same run.", "model": Started, "headers": _STARTED},
        **_NOT_FOUND,
    },
)
async def start_run(given: StartGiven, by: Writer, key: IdempotencyKey = None) -> Response:
    started = await by.client.start(
        given.pipeline,
        given.input,
        tenant=tenant_of(by, given.tenant),
        key=key,
        run_at=given.run_at,
        priority=given.priority,
        webhook=_webhook(given.webhook),
    )
    return _answered(
        {"id": started.id, "created": started.created},
        202 if started.created else 200,
        {"Location": f"/api/v1/runs/{started.id}"},
    )


@router.post(
    "/bulk",
    status_code=202,
    summary="Start many runs of one pipeline",
    response_model=StartedMany,
    responses={
        202: {"description": "All are committed."},
        200: {"description": "This key was used before; they are the same runs.", "model": StartedMany},
        **_NOT_FOUND,
    },
)
async def start_runs(given: BulkGiven, by: Writer, key: IdempotencyKey = None) -> Response:
    started = await by.client.start_many(
        given.pipeline,
        given.inputs,
        tenant=tenant_of(by, given.tenant),
        key=key,
        priority=given.priority,
        webhook=_webhook(given.webhook),
    )
    created = any(run.created for run in started)
    return _answered({"runs": [run.id for run in started]}, 202 if created else 200)


@router.get("", summary="List runs, newest first")
async def list_runs(
    by: Reader,
    state: Annotated[list[RunState] | None, Query(description="In one of these states.")] = None,
    pipeline: Annotated[Name | None, Query()] = None,
    tenant: Annotated[Name | None, Query(description="Of this tenant.")] = None,
    since: Annotated[AwareDatetime | None, Query(description="Started then or later.")] = None,
    before: Annotated[Before, Query()] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> RunPage:
    if by.tenant is not None and tenant not in (None, by.tenant):
        return RunPage(runs=[], next=None)
    found = await by.client.runs(
        tenant=by.tenant or tenant,
        pipeline=pipeline,
        states=state,
        before=before,
        since=since,
        limit=limit + 1,
        with_input=False,
    )
    page = found[:limit]
    return RunPage(runs=[shape(run) for run in page], next=page[-1].id if len(found) > limit else None)


@router.get("/{run:uuid}", summary="Show a run: how far it is, and why it waits", responses=_NOT_FOUND)
async def show_run(run: UUID, by: Reader) -> RunDetails:
    return await details(by, await own(by, run))


@router.get("/{run:uuid}/events", summary="What happened in a run, in order", responses=_NOT_FOUND)
async def list_run_events(
    run: UUID,
    by: Reader,
    after: Annotated[int, Query(ge=0, le=LARGEST_NUMBER, description="Only events after this number.")] = 0,
    limit: Annotated[Limit, Query()] = 100,
) -> EventPage:
    await own(by, run)
    found = await by.client.events(run, after=after, limit=limit + 1)
    page = found[:limit]
    return EventPage(
        events=[EventShape(**{**vars(event), "data": shown(by, event.data)}) for event in page],
        next=page[-1].id if len(found) > limit else None,
    )


@router.get(
    "/{run:uuid}/results",
    summary="The current results by step; of an `each` step, by item",
    response_model=dict[str, Any],
    responses=_NOT_FOUND,
)
async def show_run_results(run: UUID, by: Reader) -> Response:
    await own(by, run)
    return _answered(await by.client.results(run), 200)


@router.post("/{run:uuid}/cancel", summary="Let nothing new start in a run", responses=_NOT_FOUND)
async def cancel_run(run: UUID, by: Writer, key: ActKey = None) -> StateOfRun:
    state = await by.client.cancel(run, tenant=by.tenant, by=f"key {by.name}", key=key)
    return StateOfRun(id=run, state=state)


async def own(by: Caller, run: UUID) -> Run:
    """The run, if it is the caller's; another tenant's is not there at all."""
    return await by.client.show(run, tenant=by.tenant)


def tenant_of(by: Caller, asked: str | None) -> str:
    """Whose the run is to be."""
    if by.tenant is None:
        return asked or DEFAULT
    if asked not in (None, by.tenant):
        raise Problem(403, "OTHER_TENANT", "this key starts runs of its own tenant only: leave `tenant` out")
    return by.tenant


def _webhook(given: WebhookGiven | None) -> Webhook | None:
    return None if given is None else Webhook(given.url, tuple(given.events), given.profile, given.retries)


def _answered(body: object, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")
