"""Reviews and decisions."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response

from retoma.client import Client
from retoma.define.review import Comment
from retoma.engine.reviews import Decision, get_feedback_form, get_form
from retoma.errors import AlreadyDecided, RetomaError
from retoma.records import DecisionResult, Review
from retoma.server.pages.forms import build_schema
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems, to_problem
from retoma.server.schemas import (
    AssignRequest,
    BulkDecisionRequest,
    DecisionOutcome,
    DecisionOutcomes,
    DecisionRequest,
    Limit,
    Name,
    ReviewDetails,
    ReviewPage,
    idempotency_key_header,
)
from retoma.states import ReviewState

router = APIRouter(prefix="/reviews", tags=["reviews"])
Reader = Annotated[Principal, require_scope("runs:read")]
Writer = Annotated[Principal, require_scope("reviews:write")]
IdempotencyKey = Annotated[
    str | None,
    idempotency_key_header("Repeating the decision with the same key returns the same response."),
]
IfMatch = Annotated[str | None, Header(alias="If-Match", description="The ETag of the review that was read.")]
NO_REVISION = 0  # revisions start at 1
VIA = "api"
MAX_HISTORY = 200
_NOT_FOUND = document_problems(404)
_ERRORS = document_problems(404, 409)
_ETAG_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {"ETag": {"description": "The revision of the review, for If-Match.", "schema": {"type": "string"}}}
    }
}


@router.get(
    "",
    summary="List reviews, oldest first; only open ones unless `state` is set",
    responses=_NOT_FOUND,
)
async def list_reviews(
    by: Reader,
    run: Annotated[UUID | None, Query(description="Only reviews of this run.")] = None,
    pipeline: Annotated[Name | None, Query(description="Only reviews of this pipeline.")] = None,
    step: Annotated[Name | None, Query(description="Only reviews of this step.")] = None,
    assignee: Annotated[Name | None, Query(description="Only reviews assigned to this person.")] = None,
    tenant: Annotated[Name | None, Query(description="Only this tenant.")] = None,
    state: Annotated[list[ReviewState] | None, Query(description="Only reviews in one of these states.")] = None,
    after: Annotated[UUID | None, Query(description="`next` of the previous page.")] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> ReviewPage:
    found = await by.client.reviews.list(
        tenant=tenant,
        run=run,
        pipeline=pipeline,
        step=step,
        assignee=assignee,
        states=state or [ReviewState.OPEN],
        after=None if after is None else await _get_review(by, after),
        limit=limit + 1,
    )
    page = found[:limit]
    return ReviewPage(reviews=page, next=page[-1].id if len(found) > limit else None)


@router.get(
    "/{review:uuid}",
    summary="Get a review with its subject, form and history",
    responses=_ETAG_RESPONSE | _NOT_FOUND,
)
async def get_review(review: UUID, by: Reader, response: Response) -> ReviewDetails:
    found = await _get_review(by, review)
    response.headers["ETag"] = f'"{found.revision}"'
    return await _get_details(by.client, found)


@router.post("/decisions", summary="Decide several reviews independently: an error in one does not affect the others")
async def decide_reviews(body: BulkDecisionRequest, by: Writer, key: IdempotencyKey = None) -> DecisionOutcomes:
    outcomes = []
    for one in body.decisions:
        # One by one, because a review may occur twice.
        results = await by.client.reviews.decide_many({one.review: _build_decision(one, by, key, one.seen)})
        outcomes += [_serialize_outcome(each) for each in results]
    return DecisionOutcomes(outcomes=outcomes)


@router.post("/{review:uuid}/decision", summary="Decide a review; the first decision wins", responses=_ERRORS)
async def decide_review(
    review: UUID, body: DecisionRequest, by: Writer, key: IdempotencyKey = None, if_match: IfMatch = None
) -> Review:
    seen = _parse_etag(if_match) if body.seen is None else body.seen
    return await by.client.reviews.decide(review, _build_decision(body, by, key, seen))


@router.post("/{review:uuid}/undo", summary="Undo a decision that has not taken effect yet", responses=_ERRORS)
async def undo_decision(review: UUID, by: Writer) -> Review:
    return await by.client.reviews.undo(review, by=by.name)


@router.post(
    "/{review:uuid}/claim",
    summary="Claim a review for ten minutes; `claimed_by` names the current claimant",
    responses=_ERRORS,
)
async def claim_review(review: UUID, by: Writer) -> Review:
    await _check_open(by, review)
    await by.client.reviews.claim(review, by=by.name)
    return await _get_review(by, review)


@router.post("/{review:uuid}/assign", summary="Assign a review", responses=_ERRORS)
async def assign_review(review: UUID, body: AssignRequest, by: Writer) -> Review:
    await _check_open(by, review)
    return await by.client.reviews.assign(review, body.assignee, by=by.name)


async def _get_review(by: Principal, review: UUID) -> Review:
    """Return the review, or raise NotFound if it does not exist or belongs to another tenant."""
    return await by.client.reviews.get(review)


async def _check_open(by: Principal, review: UUID) -> None:
    found = await _get_review(by, review)
    if not found.is_open:
        raise AlreadyDecided(found)


def _parse_etag(etag: str | None) -> int | None:
    """Return the revision in an ETag. An unknown tag matches no revision, so the decision is rejected."""
    if etag is None or etag == "*":
        return None
    digits = etag.removeprefix("W/").strip('"')
    return int(digits) if re.fullmatch("[0-9]{1,9}", digits) else NO_REVISION


def _build_decision(body: DecisionRequest, by: Principal, key: str | None, seen: int | None) -> Decision:
    # An explicit null is a value.
    edited = {"value": body.value} if "value" in body.model_fields_set else {}
    return Decision(
        body.action,
        by=by.name,
        seen=seen,
        notes=body.notes,
        to=body.to,
        items=body.items,
        comments=[Comment(**one.model_dump()) for one in body.comments],
        extra=body.extra,
        key=key,
        via=VIA,
        undo=timedelta(seconds=body.undo_seconds),
        **edited,
    )


def _serialize_outcome(result: DecisionResult) -> DecisionOutcome:
    problem = to_problem(result.error).body if isinstance(result.error, RetomaError) else None
    return DecisionOutcome(review=result.review, current=result.current, problem=problem)


async def _get_details(client: Client, review: Review) -> ReviewDetails:
    pipeline = client.app.pipelines.get(review.pipeline) if client.app else None
    events = await client.runs.list_job_events(review.run, review.step, review.item, limit=MAX_HISTORY)
    return ReviewDetails(
        **vars(review),
        subjects=list((await client.reviews.get_subjects(review)).values()),
        form=build_schema(get_form(review, pipeline)),
        feedback_form=build_schema(get_feedback_form(review, pipeline)),
        comments=(review.feedback or {}).get("comments", []),
        history=[event for event in reversed(events) if event.kind == "review"],
    )
