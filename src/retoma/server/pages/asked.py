"""What is said of a review wherever it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from retoma.define.file import File
from retoma.errors import AlreadyDecided, Conflict, InvalidInput, KeyReused, NotFound, RetomaError, RevisionChanged
from retoma.records import Review, Run
from retoma.server.pages.visit import Visit

Urgency = Literal["", "warn", "fail"]
SOON, NOW = timedelta(hours=1), timedelta(minutes=15)


def urgency(review: Review, now: datetime) -> Urgency:
    """The colour of its due time: amber in the last hour, red in its last quarter and when it has passed."""
    if review.due_at is None or not review.is_open:
        return ""
    left = review.due_at - now
    return "fail" if left < NOW else "warn" if left < SOON else ""


def first_was(visit: Visit, winner: Review) -> str:
    """Who was first, when, and what they decided."""
    if winner.decided_by is None:
        return visit.say("is over", state=visit.say(f"state {winner.state}").lower())
    state = visit.say(f"state {winner.state}").lower()
    return visit.say("was first", by=winner.decided_by, state=state, time=visit.formats.time(winner.decided_at))


def at_odds(visit: Visit, error: Conflict) -> str:
    """Why a decision was refused because of what is there."""
    match error:
        case AlreadyDecided():
            return first_was(visit, error.winner)
        case RevisionChanged():
            return visit.say("revision changed")
        case KeyReused():
            return visit.say("form used")
        case _:
            return visit.say("no more back")


def not_approved(visit: Visit, error: Exception) -> str:
    """Why one of many, approved as they are, was not."""
    match error:
        case Conflict():
            return at_odds(visit, error)
        case InvalidInput():
            return visit.say("form to fill")
        case NotFound():
            return visit.say("no review")
        case _:
            return str(error) if isinstance(error, RetomaError) else visit.say("error 500")


def file_url(run: Run, file: File | Mapping[str, Any]) -> str:
    """Where a file is that the run's data names, for a player, a picture or a link."""
    return f"/api/v1/runs/{run.id}/files/{file.file if isinstance(file, File) else file['file']}"
