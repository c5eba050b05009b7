"""What reviewers have said of a work, which holds for every later one too."""

from __future__ import annotations

from collections.abc import Sequence

from retoma import Context

LONGEST_WISH = 4_000
"""Characters: what is longer is cut, so that a result stays one that can be kept."""


def wishes_with(former: Sequence[str], ctx: Context) -> list[str]:
    """Those that the former work had, and what this one was sent back with, the last one last."""
    said = ctx.feedback.said[:LONGEST_WISH] if ctx.feedback else ""
    return [*former, said] if said else list(former)
