"""What reviewers have said of a work, which holds for every later one too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from retoma import Context
from retoma_apps.videos.models import Language, WithFeedbackHistory

MAX_NOTE_CHARACTERS = 4_000
"""Characters: what is longer is cut, so that a result stays one that can be kept."""
Result = TypeVar("Result", bound=WithFeedbackHistory)


def find_previous_result(kind: type[Result], topic: str, language: Language, ctx: Context) -> Result | None:
    """What this job made before of the same topic in the same language: a fork may have changed either."""
    former = kind.model_validate(ctx.previous_result) if ctx.previous_result else None
    return former if former and (former.topic, former.language) == (topic, language) else None


def append_feedback(history: Sequence[str], ctx: Context) -> list[str]:
    """Those that the former work had, and what this one was sent back with, the last one last."""
    said = ctx.feedback.text[:MAX_NOTE_CHARACTERS] if ctx.feedback else ""
    return [*history, said] if said else list(history)
