"""What happened at the reviews of a run, as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retoma.records import Event, Review
from retoma.server.pages.visit import Visit
from retoma.server.pages.words import KNOWN

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
    return [
        _trace(visit, event) for event in reversed(events) if (event.step, event.item) == (review.step, review.item)
    ]


def _trace(visit: Visit, event: Event) -> Trace:
    data: Mapping[str, Any] = event.data or {}
    what = str(data.get("what", ""))
    name = f"trail {what} edited" if what == "approved" and data.get("edited") else f"trail {what}"
    about = {part: str(data.get(part) or visit.say("nobody")) for part in ("by", "to")}
    text = visit.say(name, **about) if name in KNOWN else what
    return Trace(event.at, event.revision, what, text, str(data.get("notes") or ""))
