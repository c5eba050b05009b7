"""Reviews: what waits for people, and their decisions."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response
from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from retoma.client import Client
from retoma.define.review import Comment
from retoma.engine.reviews import Decision, feedback_form_of, form_of, has_form
from retoma.errors import AlreadyDecided, RetomaError
from retoma.records import Decided, Review
from retoma.server.callers import Caller, caller
from retoma.server.problems import documented, of_error
from retoma.server.shapes import (
    AssignGiven,
    DecisionGiven,
    DecisionOutcomes,
    DecisionsGiven,
    EventShape,
    Limit,
    Name,
    Outcome,
    ReviewDetails,
    ReviewPage,
    ReviewShape,
    SubjectShape,
    idempotency_key,
)
from retoma.states import ReviewState

router = APIRouter(prefix="/reviews", tags=["reviews"])
Reader = Annotated[Caller, caller("runs:read")]
Writer = Annotated[Caller, caller("reviews:write")]
IdempotencyKey = Annotated[
    str | None, idempotency_key("The same decision with the same key gets the same answer, however often it is sent.")
]
IfMatch = Annotated[str | None, Header(alias="If-Match", description="The ETag of the review as it was seen.")]
NONE = 0  # no revision
VIA = "api"
MOST_HISTORY = 200
_NOT_FOUND = documented(404)
_REFUSED = documented(404, 409)
_TAG: dict[int | str, dict[str, Any]] = {
    200: {"headers": {"ETag": {"description": "Its revision, for If-Match.", "schema": {"type": "string"}}}}
}


@router.get(
    "",
    summary="List reviews, the oldest first; those that are open unless `state` says otherwise",
    responses=_NOT_FOUND,
)
async def list_reviews(
    by: Reader,
    run: Annotated[UUID | None, Query(description="Of this run.")] = None,
    pipeline: Annotated[Name | None, Query()] = None,
    step: Annotated[Name | None, Query()] = None,
    assignee: Annotated[Name | None, Query()] = None,
    tenant: Annotated[Name | None, Query(description="Of this tenant.")] = None,
    state: Annotated[list[ReviewState] | None, Query(description="In one of these states.")] = None,
    after: Annotated[UUID | None, Query(description="`next` of the page before.")] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> ReviewPage:
    if by.tenant is not None and tenant not in (None, by.tenant):
        return ReviewPage(reviews=[], next=None)
    found = await by.client.reviews(
        tenant=by.tenant or tenant,
        run=run,
        pipeline=pipeline,
        step=step,
        assignee=assignee,
        states=state or [ReviewState.OPEN],
        after=None if after is None else await _own(by, after),
        limit=limit + 1,
    )
    page = found[:limit]
    return ReviewPage(reviews=[_shape(one) for one in page], next=page[-1].id if len(found) > limit else None)


@router.get(
    "/{review:uuid}",
    summary="Show a review: what it is about, what it asks for, and what was said before",
    responses=_TAG | _NOT_FOUND,
)
async def show_review(review: UUID, by: Reader, answer: Response) -> ReviewDetails:
    found = await _own(by, review)
    answer.headers["ETag"] = f'"{found.revision}"'
    return await _details(by.client, found)


@router.post(
    "/decisions", summary="Decide many reviews, each by itself: what is refused of one changes nothing for the others"
)
async def decide_reviews(given: DecisionsGiven, by: Writer, key: IdempotencyKey = None) -> DecisionOutcomes:
    outcomes = []
    for one in given.decisions:
        # One by one, as a review may be named twice.
        ended = await by.client.decide_many({one.review: _decision(one, by, key, one.seen)}, tenant=by.tenant)
        outcomes += [_outcome(each) for each in ended]
    return DecisionOutcomes(outcomes=outcomes)


@router.post("/{review:uuid}/decision", summary="Decide a review; the first decision wins", responses=_REFUSED)
async def decide_review(
    review: UUID, given: DecisionGiven, by: Writer, key: IdempotencyKey = None, if_match: IfMatch = None
) -> ReviewShape:
    seen = _tagged(if_match) if given.seen is None else given.seen
    return _shape(await by.client.decide(review, _decision(given, by, key, seen), tenant=by.tenant))


@router.post("/{review:uuid}/undo", summary="Take a decision back that has not taken effect yet", responses=_REFUSED)
async def undo_decision(review: UUID, by: Writer) -> ReviewShape:
    return _shape(await by.client.undo(review, by=by.name, tenant=by.tenant))


@router.post(
    "/{review:uuid}/claim",
    summary="Let others see for ten minutes that you look at it; `claimed_by` says who does",
    responses=_REFUSED,
)
async def claim_review(review: UUID, by: Writer) -> ReviewShape:
    await _open(by, review)
    await by.client.claim_review(review, by=by.name, tenant=by.tenant)
    return _shape(await _own(by, review))


@router.post("/{review:uuid}/assign", summary="Let it be somebody's", responses=_REFUSED)
async def assign_review(review: UUID, given: AssignGiven, by: Writer) -> ReviewShape:
    await _open(by, review)
    return _shape(await by.client.assign_review(review, given.assignee, by=by.name, tenant=by.tenant))


async def _own(by: Caller, review: UUID) -> Review:
    """The review, if it is the caller's; another tenant's is not there at all."""
    return await by.client.review(review, tenant=by.tenant)


async def _open(by: Caller, review: UUID) -> None:
    found = await _own(by, review)
    if not found.is_open:
        raise AlreadyDecided(found)


def _tagged(etag: str | None) -> int | None:
    """The revision whose tag this is. Any that we never gave is of none, so that nothing is decided by it."""
    if etag is None or etag == "*":
        return None
    digits = etag.removeprefix("W/").strip('"')
    return int(digits) if re.fullmatch("[0-9]{1,9}", digits) else NONE


def _decision(given: DecisionGiven, by: Caller, key: str | None, seen: int | None) -> Decision:
    # A value of null is one, if it was said.
    edited = {"value": given.value} if "value" in given.model_fields_set else {}
    return Decision(
        given.action,
        by=by.name,
        seen=seen,
        notes=given.notes,
        to=given.to,
        items=given.items,
        comments=[Comment(**one.model_dump()) for one in given.comments],
        extra=given.extra,
        key=key,
        via=VIA,
        undo=timedelta(seconds=given.undo_seconds),
        **edited,
    )


def _outcome(ended: Decided) -> Outcome:
    problem = of_error(ended.error).body if isinstance(ended.error, RetomaError) else None
    return Outcome(review=ended.review, now=None if ended.now is None else _shape(ended.now), problem=problem)


def _shape(review: Review) -> ReviewShape:
    return ReviewShape(**{name: getattr(review, name) for name in ReviewShape.model_fields})


async def _details(client: Client, review: Review) -> ReviewDetails:
    pipeline = client.app.pipelines.get(review.pipeline) if client.app else None
    events = await client.job_events(review.run, review.step, review.item, limit=MOST_HISTORY)
    return ReviewDetails(
        **_shape(review).model_dump(),
        subjects=[SubjectShape(**vars(one)) for one in (await client.subjects(review)).values()],
        has_form=has_form(review, pipeline),
        form=_schema(form_of(review, pipeline)),
        feedback_form=_schema(feedback_form_of(review, pipeline)),
        comments=(review.feedback or {}).get("comments", []),
        history=[EventShape(**vars(event)) for event in reversed(events) if event.kind == "review"],
    )


def _schema(form: Any) -> dict[str, Any] | None:
    """None also for a type that JSON Schema cannot describe."""
    if form is None:
        return None
    try:
        return TypeAdapter(form).json_schema()
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError):
        return None
