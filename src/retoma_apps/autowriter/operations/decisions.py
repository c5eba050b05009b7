"""Decisions on articles that need a review: accept, rerun a part, or reject."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from retoma import Client
from retoma.records import Review
from retoma.reviews import Decision
from retoma_apps.autowriter.pipeline import article

DecisionAction = Literal["accept", "rerun", "reject"]
_ACTIONS = {"accept": "approve", "rerun": "send_back", "reject": "reject"}


async def decide_article(
    client: Client,
    review: Review,
    action: DecisionAction,
    *,
    by: str,
    notes: str = "",
    step: str | None = None,
    items: list[str] | None = None,
    seen: int | None = None,
    key: str | None = None,
    via: str = "api",
) -> Review:
    """Decide a review of an article. `step` is the one to rerun."""
    decision = Decision(_ACTIONS[action], by=by, notes=notes, to=step, items=items, seen=seen, key=key, via=via)
    return await client.reviews.decide(review.id, decision)


async def get_open_review(client: Client, run: UUID) -> Review | None:
    """Return the open review of an article, or None."""
    return next(iter(await client.reviews.list(run=run, pipeline=article.name, limit=1)), None)
