"""Refuse feedback that only another provider could follow."""

from __future__ import annotations

from collections.abc import Iterable

from retoma.errors import FeedbackNotSupported
from retoma.reviews import Feedback
from retoma_apps.providers.provider import Provider, format_variables

_MAX_NOTES = 120


def refuse_feedback(feedback: Feedback, message: str, providers: Iterable[type[Provider]] = ()) -> FeedbackNotSupported:
    """Return the error. In `message`, `variables` are those of the `providers` that could follow the notes."""
    notes = " ".join(feedback.text.split())[:_MAX_NOTES]
    return FeedbackNotSupported(message, notes=notes, variables=format_variables(providers))
