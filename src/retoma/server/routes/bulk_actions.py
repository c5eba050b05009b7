"""Actions on everything that matches a filter, and jobs that wait for their next attempt."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, ConfigDict, Field

from retoma.client.bulk_actions import FIELDS_BY_KIND, BulkFilter
from retoma.records import BulkAction, BulkKind, BulkPreview, Scope
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.routes.runs import get_own_run
from retoma.server.schemas import (
    MAX_INT,
    BulkActionList,
    ItemKey,
    Limit,
    Name,
    RequestBody,
    RetryList,
    idempotency_key_header,
)
from retoma.states import RunState

router = APIRouter(tags=["bulk actions"])
Reader = Annotated[Principal, require_scope("runs:read")]
Writer = Annotated[Principal, require_scope("runs:write")]
IdempotencyKey = Annotated[
    str | None, idempotency_key_header("Repeating the request with the same key returns the same action.")
]


def _describe_fields(*kinds: BulkKind, otherwise: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that these kinds take no field but their own."""
    others = {each.name for each in fields(BulkFilter)} - FIELDS_BY_KIND[kinds[0]]
    empty = {"anyOf": [{"type": "null"}, {"type": "array", "maxItems": 0}]}
    return {
        "if": {"properties": {"kind": {"enum": [str(kind) for kind in kinds]}}},
        "then": {"properties": {name: empty if name == "states" else {"type": "null"} for name in sorted(others)}},
        "else": otherwise,
    }


_FIELDS_SCHEMA = _describe_fields(
    BulkKind.CANCEL_RUNS,
    BulkKind.RERUN_FAILED,
    otherwise=_describe_fields(BulkKind.REDELIVER, otherwise=_describe_fields(BulkKind.RETRY_JOBS, otherwise={})),
)


class BulkActionRequest(RequestBody):
    """What to do, and to what. A field that does not apply to the kind is an error."""

    model_config = ConfigDict(json_schema_extra=_FIELDS_SCHEMA)

    kind: BulkKind
    tenant: Name | None = Field(None, description="Only this tenant.")
    pipeline: Name | None = None
    states: list[RunState] | None = Field(None, max_length=20, description="Of runs.")
    since: AwareDatetime | None = Field(None, description="Runs started, or deliveries created, since then.")
    title: Name | None = Field(None, description="Runs whose titles contain this text.")
    endpoint: int | None = Field(None, ge=1, le=MAX_INT, description="Deliveries to this endpoint.")
    queue: Name | None = Field(None, description="Jobs of this queue.")
    step: Name | None = Field(None, description="Jobs of this step.")
    code: Name | None = Field(None, description="Jobs whose last attempt ended with this code.")

    @property
    def filter(self) -> BulkFilter:
        return BulkFilter(**self.model_dump(exclude={"kind", "tenant", "expected"}))


class BulkStartActionRequest(BulkActionRequest):
    expected: int | None = Field(
        None, ge=0, le=MAX_INT, description="The count of a preview: if more match by now, nothing starts."
    )


class RetryRequest(RequestBody):
    step: Name
    item: ItemKey = ""


@router.post("/bulk-actions/preview", summary="Count what a bulk action would change", responses=document_problems(403))
async def preview_bulk_action(body: BulkActionRequest, by: Writer) -> BulkPreview:
    return await _with_scope(by, body.kind).client.bulk_actions.preview(body.kind, body.filter, tenant=body.tenant)


@router.post("/bulk-actions", status_code=202, summary="Start a bulk action", responses=document_problems(403, 409))
async def start_bulk_action(body: BulkStartActionRequest, by: Writer, key: IdempotencyKey = None) -> BulkAction:
    """Its targets are chosen now. Workers and servers act on them one by one, also after a restart."""
    return await _with_scope(by, body.kind).client.bulk_actions.start(
        body.kind,
        body.filter,
        tenant=body.tenant,
        by=by.author,
        expected=body.expected,
        key=key,
    )


@router.get("/bulk-actions", summary="List bulk actions, newest first")
async def list_bulk_actions(by: Reader, limit: Annotated[Limit, Query()] = 50) -> BulkActionList:
    return BulkActionList(bulk_actions=await by.client.bulk_actions.list(limit=limit))


@router.get("/bulk-actions/{action:uuid}", summary="Get a bulk action", responses=document_problems(404))
async def get_bulk_action(action: UUID, by: Reader) -> BulkAction:
    return await by.client.bulk_actions.get(action)


@router.post("/bulk-actions/{action:uuid}/abort", summary="Abort a bulk action", responses=document_problems(403, 404))
async def abort_bulk_action(action: UUID, by: Writer) -> BulkAction:
    """What it has done stays done. Aborting an action that has ended changes nothing."""
    kind = (await by.client.bulk_actions.get(action)).kind
    return await _with_scope(by, kind).client.bulk_actions.abort(action, by=by.author)


@router.get("/retries", summary="List jobs that wait for their next attempt, the next one first")
async def list_retries(
    by: Reader,
    tenant: Annotated[Name | None, Query(description="Only this tenant.")] = None,
    pipeline: Annotated[Name | None, Query(description="Only jobs of this pipeline.")] = None,
    queue: Annotated[Name | None, Query(description="Only jobs of this queue.")] = None,
    step: Annotated[Name | None, Query(description="Only jobs of this step.")] = None,
    code: Annotated[Name | None, Query(description="Only jobs whose last attempt ended with this code.")] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> RetryList:
    found = await by.client.runs.list_retries(
        tenant=tenant, pipeline=pipeline, queue=queue, step=step, code=code, limit=limit
    )
    return RetryList(retries=found)


@router.post(
    "/runs/{run:uuid}/retry-now",
    status_code=204,
    summary="Start the next attempt of a job now, instead of after its delay",
    responses=document_problems(404, 409),
)
async def retry_now(run: UUID, body: RetryRequest, by: Writer) -> None:
    await get_own_run(by, run)
    await by.client.runs.retry_now(run, body.step, item=body.item, by=by.author)


def _with_scope(by: Principal, kind: BulkKind) -> Principal:
    """Sending webhooks again needs another scope than the other kinds. Raise a Problem if the caller lacks it."""
    return by.for_scope(Scope.DELIVERIES_WRITE) if kind is BulkKind.REDELIVER else by
