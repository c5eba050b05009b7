"""The feedback of reviewers so far, which applies to later results too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from retoma import Context
from retoma_apps.media.models import Language
from retoma_apps.videos.models import WithFeedbackHistory

MAX_NOTE_CHARACTERS = 4_000
"""Longer notes are cut, so the result stays small enough to store."""
Result = TypeVar("Result", bound=WithFeedbackHistory)


def find_previous_result(kind: type[Result], topic: str, language: Language, ctx: Context) -> Result | None:
    """Return this job's previous result for the same topic and language: a fork may have changed either."""
    previous = kind.model_validate(ctx.previous_result) if ctx.previous_result else None
    return previous if previous and (previous.topic, previous.language) == (topic, language) else None


def append_feedback(history: Sequence[str], ctx: Context) -> list[str]:
    """Return the feedback of the previous result followed by that of this one."""
    note = ctx.feedback.text[:MAX_NOTE_CHARACTERS] if ctx.feedback else ""
    return [*history, note] if note else list(history)
