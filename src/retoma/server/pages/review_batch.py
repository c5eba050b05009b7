"""Approve several reviews at once: those that were checked, or all of a filter after a preview. Each has its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from starlette.responses import Response

from retoma.engine import inbox_state
from retoma.engine.reviews import Decision
from retoma.errors import Conflict, NotFound
from retoma.records import DecisionResult, InboxEntry, Review
from retoma.server.pages import inbox
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.server.pages.review_form import UNDO_PERIOD
from retoma.server.pages.review_summary import explain_not_approved

MAX_APPROVALS = 500
BATCH_UNDO_PERIOD = timedelta(seconds=60)  # of several decisions: it takes longer to look at their results


@dataclass(frozen=True)
class Outcome:
    """The result of one of several approvals. `review` is its state now, None if it does not exist."""

    id: UUID
    title: str
    review: Review | None
    error: str

    @property
    def can_be_undone(self) -> bool:
        return not self.error and self.review is not None and self.review.can_be_undone


async def preview_approval(context: PageContext) -> Response:
    """Show what "approve all of this filter" would approve, and what it would leave."""
    entries = await inbox.list_entries(context, limit=MAX_APPROVALS + 1)
    return await inbox.render_inbox(
        context,
        preview={
            "approved": [each for each in entries[:MAX_APPROVALS] if can_be_approved_at_once(each)],
            "left": [each for each in entries[:MAX_APPROVALS] if not can_be_approved_at_once(each)],
            "is_more": len(entries) > MAX_APPROVALS,
            "maximum": MAX_APPROVALS,
        },
    )


async def approve_reviews(context: PageContext) -> Response:
    """Approve the chosen reviews at the revisions that were shown, and redirect to their results."""
    checked = map(_parse_checked, context.get_field_values("review")[:MAX_APPROVALS])
    chosen = dict(each for each in checked if each is not None)
    if not chosen:
        return context.redirect("/reviews", "nothing_chosen", **inbox.read_filters(context))
    undo = UNDO_PERIOD if len(chosen) == 1 else BATCH_UNDO_PERIOD
    key = context.idempotency_key
    results = await context.client.reviews.decide_many(
        {
            review: Decision("approve", by=context.by, seen=seen, via="page", undo=undo, key=key)
            for review, seen in chosen.items()
        }
    )
    batch = _read_batch_id(key)
    outcomes = [
        {"review": str(each.review), "title": await _find_title(context, each), "error": _explain(context, each)}
        for each in results
    ]
    await inbox_state.save_batch(context.client.database, batch, context.viewer, outcomes)
    return context.redirect(f"/reviews/batches/{batch}", **inbox.read_filters(context))


async def show_batch(context: PageContext) -> Response:
    """Show the results of a batch, failures first."""
    outcomes = await _load_outcomes(context)
    approved = [each for each in outcomes if not each.error]
    now = await context.client.now()
    undoable = [each.review for each in approved if each.review is not None and each.can_be_undone]
    ends = [each.effective_at for each in undoable if each.effective_at is not None]
    return await inbox.render_inbox(
        context,
        batch={
            "id": context.get_path_id("batch"),
            "outcomes": sorted(outcomes, key=lambda each: not each.error),
            "approved": len(approved),
            "undoable": len(undoable),
            "seconds": max(0.0, (max(ends) - now).total_seconds()) if ends else 0.0,
        },
    )


async def undo_batch(context: PageContext) -> Response:
    """Undo all approvals of a batch that have not taken effect, or the one that the form names."""
    batch, one = context.get_path_id("batch"), context.fields.get("review", "")
    for each in await _load_outcomes(context):
        if each.can_be_undone and one in ("", str(each.id)):
            await _undo(context, each.id)
    return context.redirect(f"/reviews/batches/{batch}", **inbox.read_filters(context))


def can_be_approved_at_once(entry: InboxEntry) -> bool:
    """Return whether the review can be approved without its page: it has no form, and no step asks for help."""
    return entry.is_open and entry.planned and not entry.has_form


async def _undo(context: PageContext, review: UUID) -> None:
    try:
        await context.client.reviews.undo(review, by=context.by)
    except Conflict:  # it has taken effect meanwhile: the page says so
        return


async def _load_outcomes(context: PageContext) -> list[Outcome]:
    batch = context.get_path_id("batch")
    kept = await inbox_state.find_batch(context.client.database, batch, context.viewer)
    if kept is None:
        raise NotFound(context.gettext("There are no results of this batch."))
    return [await _load_outcome(context, each) for each in kept]


async def _load_outcome(context: PageContext, kept: Mapping[str, Any]) -> Outcome:
    review = UUID(kept["review"])
    try:
        return Outcome(review, kept["title"], await context.client.reviews.get(review), kept["error"])
    except NotFound:
        return Outcome(review, kept["title"], None, kept["error"])


async def _find_title(context: PageContext, result: DecisionResult) -> str:
    try:
        review = result.current or await context.client.reviews.get(result.review)
    except NotFound:
        return str(result.review)[:13]
    return review.run_title or (await context.client.runs.get(review.run)).about or str(review.run)[:13]


def _explain(context: PageContext, result: DecisionResult) -> str:
    return "" if result.error is None else explain_not_approved(context, result.error)


def _read_batch_id(key: str | None) -> UUID:
    """Return the id of the batch: that of the form, so that a form that is sent twice has one result."""
    try:
        return UUID(hex=key or "")
    except ValueError:
        return uuid4()


def _parse_checked(text: str) -> tuple[UUID, int] | None:
    """Return a review and the revision that was shown, or None."""
    review, _, revision = text.partition(":")
    try:
        return UUID(review), int(revision)
    except ValueError:
        return None


PAGES: Sequence[Page] = (
    Page("/reviews", inbox.show_inbox, approve_reviews, submit_scope="reviews:write"),
    Page("/reviews/approve", preview_approval, scope="reviews:write"),
    Page("/reviews/batches/{batch}", show_batch, undo_batch, submit_scope="reviews:write"),
)
