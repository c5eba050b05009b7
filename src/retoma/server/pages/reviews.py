"""What waits for people, by kind, with its filters in the address; many can be approved at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from uuid import UUID

from starlette.responses import Response

from retoma.engine.reviews import Decision
from retoma.errors import NotFound
from retoma.records import Decided, Review
from retoma.server.pages.asked import Urgency, not_approved, urgency
from retoma.server.pages.page import Page
from retoma.server.pages.review import UNDO
from retoma.server.pages.visit import Visit
from retoma.states import ReviewState

SIZE = 50
MOST_AT_ONCE = 200
FILTERS = ("pipeline", "step", "tenant", "assignee", "state", "after")


@dataclass(frozen=True)
class Row:
    """`about` is what its run is about; `urgency` the colour of its due time."""

    review: Review
    about: str
    urgency: Urgency


@dataclass(frozen=True)
class Kind:
    pipeline: str
    step: str
    rows: list[Row]


@dataclass(frozen=True)
class Outcome:
    """How one of many decisions ended."""

    review: UUID
    about: str
    step: str
    why: str
    can_be_undone: bool


async def show(visit: Visit, outcomes: list[Outcome] | None = None) -> Response:
    client, asked, now = visit.client, visit.asked, await visit.client.now()
    found = await _listed(visit)
    return visit.show(
        "reviews.html",
        kinds=await _kinds(visit, found[:SIZE], now),
        counts=await client.review_counts(),
        next=found[SIZE - 1].id if len(found) > SIZE else None,
        states=list(ReviewState),
        asked=asked,
        filtered=any(_filters(visit).values()),
        may_approve=any(review.is_open for review in found[:SIZE]),
        outcomes=outcomes or [],
        now=now,
    )


async def approve(visit: Visit) -> Response:
    """Each of those that were checked, as it was seen; what cannot be approved says why."""
    chosen = [each for each in map(_seen, visit.several("review")[:MOST_AT_ONCE]) if each is not None]
    if not chosen:
        return visit.go("/reviews", "nothing_chosen", **_filters(visit))
    decisions = {
        review: Decision("approve", by=visit.by, seen=seen, via="page", undo=UNDO, key=visit.key)
        for review, seen in chosen
    }
    return await show(visit, [await _outcome(visit, each) for each in await visit.client.decide_many(decisions)])


def _filters(visit: Visit) -> dict[str, str]:
    return {name: visit.asked.get(name, "") for name in FILTERS}


async def _listed(visit: Visit) -> list[Review]:
    asked, state = visit.asked, visit.choice("state", ReviewState)
    return await visit.client.reviews(
        pipeline=asked.get("pipeline") or None,
        step=asked.get("step") or None,
        tenant=asked.get("tenant") or None,
        assignee=asked.get("assignee") or None,
        states=[state or ReviewState.OPEN],
        after=await visit.client.review(_id(asked["after"])) if asked.get("after") else None,
        limit=SIZE + 1,
    )


async def _kinds(visit: Visit, reviews: list[Review], now: datetime) -> list[Kind]:
    runs = {run: (await visit.client.show(run)).about for run in {review.run for review in reviews}}
    ordered = sorted(reviews, key=_kind)  # keeps the oldest first within each
    return [
        Kind(pipeline, step, [Row(each, runs[each.run], urgency(each, now)) for each in rows])
        for (pipeline, step), rows in groupby(ordered, key=_kind)
    ]


def _kind(review: Review) -> tuple[str, str]:
    return review.pipeline, review.step


async def _outcome(visit: Visit, decided: Decided) -> Outcome:
    try:
        review = decided.now or await visit.client.review(decided.review)
    except NotFound as error:
        return Outcome(decided.review, str(decided.review)[:13], "", not_approved(visit, error), can_be_undone=False)
    about = (await visit.client.show(review.run)).about or str(review.run)[:13]
    why = "" if decided.error is None else not_approved(visit, decided.error)
    return Outcome(review.id, about, review.step, why, can_be_undone=not why and review.can_be_undone)


def _seen(given: str) -> tuple[UUID, int] | None:
    """A review and the revision of it that the person saw."""
    review, _, revision = given.partition(":")
    try:
        return UUID(review), int(revision)
    except ValueError:
        return None


def _id(given: str) -> UUID:
    try:
        return UUID(given)
    except ValueError:
        raise NotFound("there is no such page of the list") from None


PAGES = (Page("/reviews", show, approve),)
