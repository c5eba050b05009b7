"""What happened at the reviews of a run, as people read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retoma.define.review import Feedback
from retoma.records import Event, Review
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
    feedback = {one.revision: told(one.feedback) for one in asked if one.item == review.item and one.feedback}
    return [
        _trace(visit, event, feedback.get(event.revision, ""))
        for event in reversed(events)
        if (event.step, event.item) == (review.step, review.item)
    ]


def told(feedback: Mapping[str, Any] | None) -> str:
    """All that a person said who sent work back: notes, moments, and what they filled in."""
    if feedback is None:
        return ""
    read = Feedback.of(feedback)
    return "\n".join(filter(None, [read.said, *(f"{name}: {_shown(value)}" for name, value in read.extra.items())]))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _trace(visit: Visit, event: Event, feedback: str) -> Trace:
    data: Mapping[str, Any] = event.data or {}
    what = str(data.get("what", ""))
    name = f"trail {what} edited" if what == "approved" and data.get("edited") else f"trail {what}"
    about = {part: str(data.get(part) or visit.say("nobody")) for part in ("by", "to")}
    if what == "sent_back":
        about["to"] = visit.label(about["to"])
    text = visit.say(name, **about) if name in KNOWN else what
    said = [str(data.get("notes") or ""), feedback if what == "sent_back" else ""]
    return Trace(event.at, event.revision, what, text, "\n".join(filter(None, said)))
