"""Texts about reviews that several pages show."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from retoma.define.file import File
from retoma.errors import AlreadyDecided, Conflict, InvalidInput, KeyReused, NotFound, RetomaError, RevisionChanged
from retoma.records import Review, Run
from retoma.server.pages.page_context import PageContext

Urgency = Literal["", "warn", "fail"]
WARN_BEFORE, FAIL_BEFORE = timedelta(hours=1), timedelta(minutes=15)


def get_urgency(review: Review, now: datetime) -> Urgency:
    """Return the colour of the due time: amber in the last hour, red in the last 15 minutes and when overdue."""
    if review.due_at is None or not review.is_open:
        return ""
    left = review.due_at - now
    return "fail" if left < FAIL_BEFORE else "warn" if left < WARN_BEFORE else ""


def describe_decision(context: PageContext, winner: Review) -> str:
    """Say who decided, when and what."""
    if winner.decided_by is None:
        return context.gettext("This review is closed: %(state)s.", state=context.get_state_name(winner.state).lower())
    state = context.get_state_name(winner.state).lower()
    return context.gettext(
        "%(by)s decided at %(time)s: %(state)s.",
        by=winner.decided_by,
        state=state,
        time=context.formats.time(winner.decided_at),
    )


def explain_conflict(context: PageContext, error: Conflict) -> str:
    """Explain why a decision conflicts with the current state."""
    match error:
        case AlreadyDecided():
            return describe_decision(context, error.winner)
        case RevisionChanged():
            return context.gettext("A new revision has been created since you opened this page: look at it again.")
        case KeyReused():
            return context.gettext("This form was already used for another decision: reload the page and decide again.")
        case _:
            return context.gettext(
                "It has been sent back the maximum number of times: approve it, reject it, or assign it to someone "
                "else."
            )


def explain_not_approved(context: PageContext, error: Exception) -> str:
    """Explain why one of several reviews was not approved."""
    match error:
        case Conflict():
            return explain_conflict(context, error)
        case InvalidInput():
            return context.gettext("Open it and fill in its form.")
        case NotFound():
            return context.gettext("this review does not exist")
        case _:
            return str(error) if isinstance(error, RetomaError) else context.gettext("Something went wrong")


def build_file_url(run: Run | UUID, file: File | Mapping[str, Any]) -> str:
    """Return the address of a file in the run's data."""
    owner = run if isinstance(run, UUID) else run.id
    return f"/api/v1/runs/{owner}/files/{file.file if isinstance(file, File) else file['file']}"
