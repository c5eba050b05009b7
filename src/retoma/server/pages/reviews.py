"""The list of reviews by kind, with its filters in the query; several can be approved at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from uuid import UUID

from starlette.responses import Response

from retoma.engine.reviews import Decision
from retoma.errors import NotFound
from retoma.records import DecisionResult, Review
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.server.pages.review import UNDO_PERIOD
from retoma.server.pages.review_summary import Urgency, explain_not_approved, get_urgency
from retoma.states import ReviewState

PAGE_SIZE = 50
MAX_APPROVALS = 200
FILTERS = ("pipeline", "step", "tenant", "assignee", "state", "after")


@dataclass(frozen=True)
class Row:
    """`about` is the subject of the run; `urgency` the colour of the due time."""

    review: Review
    about: str
    urgency: Urgency


@dataclass(frozen=True)
class ReviewGroup:
    pipeline: str
    step: str
    rows: list[Row]


@dataclass(frozen=True)
class ApprovalOutcome:
    """The result of one of several approvals."""

    review: UUID
    about: str
    step: str
    error: str
    can_be_undone: bool


async def show_reviews(context: PageContext, outcomes: list[ApprovalOutcome] | None = None) -> Response:
    client, asked, now = context.client, context.query, await context.client.now()
    found = await _list_reviews(context)
    return context.render(
        "reviews.html",
        kinds=await _group_reviews(context, found[:PAGE_SIZE], now),
        counts=await client.reviews.count_open(),
        next=found[PAGE_SIZE - 1].id if len(found) > PAGE_SIZE else None,
        states=list(ReviewState),
        query=asked,
        filtered=any(_read_filters(context).values()),
        may_approve=any(review.is_open for review in found[:PAGE_SIZE]),
        outcomes=outcomes or [],
        now=now,
    )


async def approve_reviews(context: PageContext) -> Response:
    """Approve the checked reviews at the revisions that were shown, and report why others could not be approved."""
    chosen = [
        each for each in map(_parse_checked, context.get_field_values("review")[:MAX_APPROVALS]) if each is not None
    ]
    if not chosen:
        return context.redirect("/reviews", "nothing_chosen", **_read_filters(context))
    decisions = {
        review: Decision("approve", by=context.by, seen=seen, via="page", undo=UNDO_PERIOD, key=context.idempotency_key)
        for review, seen in chosen
    }
    return await show_reviews(
        context,
        [await _build_outcome(context, each) for each in await context.client.reviews.decide_many(decisions)],
    )


def _read_filters(context: PageContext) -> dict[str, str]:
    return {name: context.query.get(name, "") for name in FILTERS}


async def _list_reviews(context: PageContext) -> list[Review]:
    asked, state = context.query, context.get_query_choice("state", ReviewState)
    return await context.client.reviews.list(
        pipeline=asked.get("pipeline") or None,
        step=asked.get("step") or None,
        tenant=asked.get("tenant") or None,
        assignee=asked.get("assignee") or None,
        states=[state or ReviewState.OPEN],
        after=await context.client.reviews.get(_parse_id(asked["after"])) if asked.get("after") else None,
        limit=PAGE_SIZE + 1,
    )


async def _group_reviews(context: PageContext, reviews: list[Review], now: datetime) -> list[ReviewGroup]:
    runs = {review.run: review.run_title for review in reviews}
    about = {run: title or (await context.client.runs.get(run)).about for run, title in runs.items()}
    ordered = sorted(reviews, key=_group_key)  # keeps the oldest first within each
    return [
        ReviewGroup(pipeline, step, [Row(each, about[each.run], get_urgency(each, now)) for each in rows])
        for (pipeline, step), rows in groupby(ordered, key=_group_key)
    ]


def _group_key(review: Review) -> tuple[str, str]:
    return review.pipeline, review.step


async def _build_outcome(context: PageContext, decided: DecisionResult) -> ApprovalOutcome:
    try:
        review = decided.current or await context.client.reviews.get(decided.review)
    except NotFound as error:
        return ApprovalOutcome(
            decided.review, str(decided.review)[:13], "", explain_not_approved(context, error), can_be_undone=False
        )
    about = review.run_title or (await context.client.runs.get(review.run)).about or str(review.run)[:13]
    why = "" if decided.error is None else explain_not_approved(context, decided.error)
    return ApprovalOutcome(review.id, about, review.step, why, can_be_undone=not why and review.can_be_undone)


def _parse_checked(text: str) -> tuple[UUID, int] | None:
    """Return a review and the revision that was shown, or None."""
    review, _, revision = text.partition(":")
    try:
        return UUID(review), int(revision)
    except ValueError:
        return None


def _parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFound("this page of the list does not exist") from None


PAGES = (Page("/reviews", show_reviews, approve_reviews),)
