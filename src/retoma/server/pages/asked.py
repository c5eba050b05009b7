"""What is said of a review wherever it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from retoma.define.file import File
from retoma.records import Review, Run
from retoma.server.pages.visit import Visit

Urgency = Literal["", "warn", "fail"]


def urgency(review: Review, now: datetime) -> Urgency:
    """The colour of its due time: red when that has passed, amber in the last quarter before."""
    if review.due_at is None or not review.is_open:
        return ""
    left, whole = review.due_at - now, review.due_at - review.opened_at
    return "fail" if left.total_seconds() <= 0 else "warn" if left < whole / 4 else ""


def first_was(visit: Visit, winner: Review) -> str:
    """Who was first, when, and what they decided."""
    if winner.decided_by is None:
        return visit.say("is over", state=visit.say(f"state {winner.state}").lower())
    state = visit.say(f"state {winner.state}").lower()
    return visit.say("was first", by=winner.decided_by, state=state, time=visit.formats.time(winner.decided_at))


def file_url(run: Run, file: File | Mapping[str, Any]) -> str:
    """Where a file is that the run's data names, for a player, a picture or a link."""
    return f"/api/v1/runs/{run.id}/files/{file.file if isinstance(file, File) else file['file']}"
