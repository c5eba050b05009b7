"""The history of a run's reviews as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retoma.define.review import Feedback
from retoma.records import Event, Review
from retoma.server.pages import forms
from retoma.server.pages.formats import NOTHING
from retoma.server.pages.page_context import PageContext
from retoma.states import ReviewState
from retoma.translations import N_

MAX_EVENTS = 1_000
EVENT_TEXTS = {
    "opened": N_("Review opened"),
    "approved": N_("%(by)s approved"),
    "approved_edited": N_("%(by)s edited and approved"),
    "sent_back": N_("%(by)s sent it back to %(to)s"),
    "rejected": N_("%(by)s rejected"),
    "undone": N_("%(by)s undid the decision"),
    "withdrawn": N_("Review withdrawn"),
    "reminded": N_("Reminder sent"),
    "escalated": N_("Escalated to %(to)s"),
    "expired": N_("Expired without a decision"),
    "assigned": N_("%(by)s assigned it to %(to)s"),
}


@dataclass(frozen=True)
class HistoryEntry:
    at: datetime
    revision: int
    decision: str
    text: str
    notes: str


async def list_history(context: PageContext, review: Review) -> list[HistoryEntry]:
    """List what happened to this review over all revisions of its run, newest first."""
    events = await context.client.runs.list_events(review.run, kinds=("review",), limit=MAX_EVENTS)
    reviews = await context.client.reviews.list(
        run=review.run, step=review.step, states=list(ReviewState), limit=MAX_EVENTS
    )
    feedback = {one.revision: one.feedback or {} for one in reviews if one.item == review.item}
    return [
        _build_entry(context, review.pipeline, event, feedback.get(event.revision, {}))
        for event in reversed(events)
        if (event.step, event.item) == (review.step, review.item)
    ]


def format_review_feedback(context: PageContext, review: Review) -> str:
    return format_feedback(
        context, review.pipeline, review.step, {**(review.feedback or {}), "items": review.back_items}
    )


def format_feedback(context: PageContext, pipeline: str, step: str, feedback: Mapping[str, Any]) -> str:
    """Return all feedback of a review that was sent back: notes, timed comments, items and form fields."""
    read = Feedback.from_json(feedback)
    labels = _feedback_labels(context, pipeline, step) if read.extra else {}
    extra = [f"{labels.get(name, name)}: {_format_value(context, value)}" for name, value in read.extra.items()]
    label = context.gettext("Items")
    items = f"{label}: {', '.join(read.items)}" if read.items else ""
    return "\n".join(filter(None, [read.text, items, *extra]))


def _feedback_labels(context: PageContext, pipeline: str, step: str) -> dict[str, str]:
    """Return the labels of the feedback form's fields; none if this server does not know the form."""
    known = context.find_pipeline(pipeline)
    held = known.steps[step].review if known and step in known.steps else None
    form = held.feedback_form if held else None
    fields = [] if form is None else forms.build_fields(forms.build_schema(form), translate=context.gettext)
    return {each.key: each.label for each in fields if each.key}


def _format_value(context: PageContext, value: Any) -> str:
    match value:
        case None:
            return NOTHING
        case bool():
            return context.gettext("yes") if value else context.gettext("no")
        case int() | float():
            return context.formats.exact(value)
        case list():
            return ", ".join(_format_value(context, each) for each in value)
        case dict():
            return ", ".join(f"{name}: {_format_value(context, each)}" for name, each in value.items())
        case _:
            return str(value)


def _build_entry(context: PageContext, pipeline: str, event: Event, feedback: Mapping[str, Any]) -> HistoryEntry:
    data: Mapping[str, Any] = event.data or {}
    what = str(data.get("what", ""))
    name = "approved_edited" if what == "approved" and data.get("edited") else what
    about = {part: str(data.get(part) or context.gettext("nobody")) for part in ("by", "to")}
    if what == "sent_back":
        about["to"] = context.get_step_label(about["to"])
    text = context.translate(EVENT_TEXTS[name], **about) if name in EVENT_TEXTS else what
    notes = [str(data.get("notes") or "")]
    if what == "sent_back":
        notes.append(format_feedback(context, pipeline, event.step or "", {**feedback, "items": data.get("items")}))
    return HistoryEntry(event.at, event.revision, what, text, "\n".join(filter(None, notes)))
