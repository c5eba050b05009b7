"""Decisions on articles that need a review: accept, rerun a part, or reject."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from retoma import Client
from retoma.records import Review
from retoma.reviews import Decision
from retoma_apps.autowriter.models import ArticleRequest, Mark
from retoma_apps.autowriter.pipeline import article, article_mark

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
    """Decide a review of an article. `step` is the one to rerun. A rejection marks the draft, if there is one."""
    decision = Decision(_ACTIONS[action], by=by, notes=notes, to=step, items=items, seen=seen, key=key, via=via)
    decided = await client.reviews.decide(review.id, decision)
    if action == "reject":
        await mark_rejected_draft(client, review.run, by=by, notes=notes)
    return decided


async def mark_rejected_draft(client: Client, run: UUID, *, by: str, notes: str) -> None:
    """Start the marking of a rejected article's draft, once. It is retried until WordPress answers."""
    found = await client.runs.get(run)
    request = ArticleRequest.model_validate(found.input)
    note = f"{by}: {notes}" if notes else by
    mark = Mark(blog_id=request.blog_id, identity=request.identity, note=note[:1000])
    await client.start(article_mark, mark, tenant=request.blog_id, key=f"mark {run}")


async def get_open_review(client: Client, run: UUID) -> Review | None:
    """Return the open review of an article, or None."""
    return next(iter(await client.reviews.list(run=run, pipeline=article.name, limit=1)), None)
