"""The list of reviews by kind, with its filters in the query; several can be approved at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from starlette.responses import Response

from retoma.engine.reviews import Decision
from retoma.errors import NotFound
from retoma.records import DecisionResult, Review
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.server.pages.review import UNDO_PERIOD
from retoma.server.pages.review_summary import explain_not_approved, get_urgency
from retoma.states import ReviewState

PAGE_SIZE = 50
MAX_APPROVALS = 200
FILTERS = ("application", "pipeline", "step", "tenant", "assignee", "state", "after")


@dataclass(frozen=True)
class ApprovalOutcome:
    """The result of one of several approvals."""

    review: UUID
    about: str
    pipeline: str
    step: str
    error: str
    can_be_undone: bool


async def show_reviews(context: PageContext, outcomes: list[ApprovalOutcome] | None = None) -> Response:
    client = context.client
    found = await _list_reviews(context)
    shown = sorted(found[:PAGE_SIZE], key=_group_key)  # keeps the oldest first within each group
    titles = {review.run: review.run_title for review in shown}
    return context.render(
        "reviews.html",
        groups=[(key, list(reviews)) for key, reviews in groupby(shown, key=_group_key)],
        subjects={run: title or (await client.runs.get(run)).about for run, title in titles.items()},
        urgency=get_urgency,
        counts=await client.reviews.count_open(),
        next=found[PAGE_SIZE - 1].id if len(found) > PAGE_SIZE else None,
        states=list(ReviewState),
        query=context.query,
        filtered=any(_read_filters(context).values()),
        may_approve=any(review.is_open for review in shown),
        outcomes=outcomes or [],
        now=await client.now(),
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
    query, state, after = context.query, context.get_query_choice("state", ReviewState), context.get_query_id("after")
    return await context.client.reviews.list(
        pipeline=context.get_query_pipelines(),
        step=query.get("step") or None,
        tenant=query.get("tenant") or None,
        assignee=query.get("assignee") or None,
        states=[state or ReviewState.OPEN],
        after=None if after is None else await context.client.reviews.get(after),
        limit=PAGE_SIZE + 1,
    )


def _group_key(review: Review) -> tuple[str, str]:
    return review.pipeline, review.step


async def _build_outcome(context: PageContext, decided: DecisionResult) -> ApprovalOutcome:
    try:
        review = decided.current or await context.client.reviews.get(decided.review)
    except NotFound as error:
        return ApprovalOutcome(
            decided.review, str(decided.review)[:13], "", "", explain_not_approved(context, error), can_be_undone=False
        )
    about = review.run_title or (await context.client.runs.get(review.run)).about or str(review.run)[:13]
    why = "" if decided.error is None else explain_not_approved(context, decided.error)
    return ApprovalOutcome(
        review.id, about, review.pipeline, review.step, why, can_be_undone=not why and review.can_be_undone
    )


def _parse_checked(text: str) -> tuple[UUID, int] | None:
    """Return a review and the revision that was shown, or None."""
    review, _, revision = text.partition(":")
    try:
        return UUID(review), int(revision)
    except ValueError:
        return None


PAGES = (Page("/reviews", show_reviews, approve_reviews),)
