"""Lists of articles: a page of them by blog and state, each with its step, cost and last change.

Nothing here loads the texts of articles, and no list is longer than a page.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from retoma import Client
from retoma.records import Run, StepProgress
from retoma.states import JobState, RunState
from retoma_apps.autowriter.models import ArticleRequest
from retoma_apps.autowriter.operations.articles import list_article_runs
from retoma_apps.autowriter.states import ArticleState, state_of, step_of_progress

PAGE_SIZE = 25
_BATCH_SIZE = 500
_MAX_BATCHES = 20  # of a search for articles in one state
_PUBLISHING_STEP = "published_wp"


@dataclass(frozen=True)
class ArticleRow:
    """An article in a list. `cost` is in millionths of a US dollar."""

    run: Run
    request: ArticleRequest
    state: ArticleState
    step: str | None
    cost: int
    updated_at: datetime


@dataclass(frozen=True)
class ArticlePage:
    """`before` is the id to continue from, or None on the last page."""

    rows: list[ArticleRow]
    before: UUID | None


async def list_article_page(
    client: Client,
    *,
    blog_id: str | None = None,
    state: ArticleState | None = None,
    before: UUID | None = None,
    limit: int = PAGE_SIZE,
) -> ArticlePage:
    """Return a page of articles, newest first. See `find_article_runs` for a search by state."""
    found, before = await find_article_runs(client, blog_id=blog_id, state=state, before=before, limit=limit)
    return ArticlePage(await build_rows(client, found), before)


async def find_article_runs(
    client: Client,
    *,
    blog_id: str | None = None,
    state: ArticleState | None = None,
    before: UUID | None = None,
    limit: int,
) -> tuple[list[Run], UUID | None]:
    """Return articles, newest first, and the id to continue from, or None if there are no more.

    A run's state alone does not say whether an article has started, so a search by state looks through up to 10,000
    articles at a time: it may return less than `limit` although there are more.
    """
    found: list[Run] = []
    for _ in range(_MAX_BATCHES):
        size = limit + 1 if state is None else _BATCH_SIZE
        runs = await list_article_runs(client, blog_id=blog_id, state=state, before=before, limit=size)
        found += runs if state is None else await _select_by_state(client, runs, state)
        before = runs[-1].id if len(runs) == size else None
        if before is None or len(found) > limit:
            break
    return found[:limit], found[limit - 1].id if len(found) > limit else before


async def build_rows(client: Client, runs: Iterable[Run]) -> list[ArticleRow]:
    return [await _build_row(client, run) for run in runs]


async def _build_row(client: Client, run: Run) -> ArticleRow:
    steps = await client.runs.get_progress(run.id)
    step = step_of_progress(steps)
    times = [at for each in steps for at in (each.started_at, each.ended_at) if at is not None]
    return ArticleRow(
        run,
        ArticleRequest.model_validate(run.input),
        state_of(run.state, has_started=step is not None, is_published=_is_published(steps)),
        step,
        sum(total.micros for total in await client.costs.get_totals(by=(), run=run.id)),
        max([run.created_at, *([run.ended_at] if run.ended_at else []), *times]),
    )


async def _select_by_state(client: Client, runs: list[Run], state: ArticleState) -> list[Run]:
    started = await client.runs.get_start_times([run.id for run in runs])
    return [
        run
        for run in runs
        if state_of(run.state, has_started=run.id in started, is_published=await _has_draft(client, run)) is state
    ]


async def _has_draft(client: Client, run: Run) -> bool:
    """Return whether there is a draft. It matters only for a run that ended with errors."""
    return run.state is RunState.COMPLETED_WITH_ERRORS and _is_published(await client.runs.get_progress(run.id))


def _is_published(steps: Iterable[StepProgress]) -> bool:
    return any(each.step == _PUBLISHING_STEP and JobState.SUCCEEDED in each.jobs for each in steps)
