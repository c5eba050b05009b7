"""What happened at the reviews of a run, as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retoma.define.review import Feedback
from retoma.records import Event, Review
from retoma.server.pages import typed
from retoma.server.pages.formats import NOTHING
from retoma.server.pages.visit import Visit
from retoma.server.pages.words import KNOWN
from retoma.states import ReviewState

MOST = 1_000


@dataclass(frozen=True)
class Trace:
    at: datetime
    revision: int
    what: str
    text: str
    notes: str


async def of_review(visit: Visit, review: Review) -> list[Trace]:
    """The same question over all revisions of its run, the newest first."""
    events = await visit.client.events(review.run, kinds=("review",), limit=MOST)
    asked = await visit.client.reviews(run=review.run, step=review.step, states=list(ReviewState), limit=MOST)
    feedback = {one.revision: one.feedback or {} for one in asked if one.item == review.item}
    return [
        _trace(visit, review.pipeline, event, feedback.get(event.revision, {}))
        for event in reversed(events)
        if (event.step, event.item) == (review.step, review.item)
    ]


def of_feedback(visit: Visit, review: Review) -> str:
    return told(visit, review.pipeline, review.step, {**(review.feedback or {}), "items": review.back_items})


def told(visit: Visit, pipeline: str, step: str, feedback: Mapping[str, Any]) -> str:
    """All that a person said who sent work back at the review `step`: notes, moments, items, what they filled in."""
    read = Feedback.of(feedback)
    labels = _labels(visit, pipeline, step) if read.extra else {}
    extra = [f"{labels.get(name, name)}: {_shown(visit, value)}" for name, value in read.extra.items()]
    items = f"{visit.say('written items')}: {', '.join(read.items)}" if read.items else ""
    return "\n".join(filter(None, [read.said, items, *extra]))


def _labels(visit: Visit, pipeline: str, step: str) -> dict[str, str]:
    """What the review's feedback form calls its fields; nothing where this server does not know it."""
    known = visit.client.app.pipelines.get(pipeline) if visit.client.app else None
    held = known.steps[step].review if known and step in known.steps else None
    form = held.feedback_form if held else None
    fields = [] if form is None else typed.fields_of(typed.schema_of(form), language=visit.language)
    return {each.key: each.label for each in fields if each.key}


def _shown(visit: Visit, value: Any) -> str:
    match value:
        case None:
            return NOTHING
        case bool():
            return visit.say("yes" if value else "no")
        case int() | float():
            return visit.formats.exact(value)
        case list():
            return ", ".join(_shown(visit, each) for each in value)
        case dict():
            return ", ".join(f"{name}: {_shown(visit, each)}" for name, each in value.items())
        case _:
            return str(value)


def _trace(visit: Visit, pipeline: str, event: Event, feedback: Mapping[str, Any]) -> Trace:
    data: Mapping[str, Any] = event.data or {}
    what = str(data.get("what", ""))
    name = f"trail {what} edited" if what == "approved" and data.get("edited") else f"trail {what}"
    about = {part: str(data.get(part) or visit.say("nobody")) for part in ("by", "to")}
    if what == "sent_back":
        about["to"] = visit.label(about["to"])
    text = visit.say(name, **about) if name in KNOWN else what
    said = [str(data.get("notes") or "")]
    if what == "sent_back":
        said.append(told(visit, pipeline, event.step or "", {**feedback, "items": data.get("items")}))
    return Trace(event.at, event.revision, what, text, "\n".join(filter(None, said)))
