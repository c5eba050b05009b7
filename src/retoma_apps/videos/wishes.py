"""What reviewers have said of a work, which holds for every later one too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from retoma import Context
from retoma_apps.videos.models import Language, Wished

LONGEST_WISH = 4_000
"""Characters: what is longer is cut, so that a result stays one that can be kept."""
Work = TypeVar("Work", bound=Wished)


def former_of(kind: type[Work], topic: str, language: Language, ctx: Context) -> Work | None:
    """What this job made before of the same topic in the same language: a fork may have changed either."""
    former = kind.model_validate(ctx.former) if ctx.former else None
    return former if former and (former.topic, former.language) == (topic, language) else None


def wishes_with(former: Sequence[str], ctx: Context) -> list[str]:
    """Those that the former work had, and what this one was sent back with, the last one last."""
    said = ctx.feedback.said[:LONGEST_WISH] if ctx.feedback else ""
    return [*former, said] if said else list(former)
