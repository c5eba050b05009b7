"""Request articles, read them, cancel them and rerun their parts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from retoma import Client
from retoma.errors import Conflict, NotFound, RunBusy
from retoma.records import Revision, Run
from retoma.states import RunState
from retoma_apps.autowriter.models import ArticleRequest
from retoma_apps.autowriter.operations.blogs import get_blog
from retoma_apps.autowriter.operations.details import find_ending
from retoma_apps.autowriter.pipeline import FIRST_STEP, article
from retoma_apps.autowriter.states import ArticleState, states_of
from retoma_apps.autowriter.steps.writing.offline import find_theme_problem
from retoma_apps.providers.llm import LanguageModel

Group = Literal["images", "seo", "body"]


@dataclass(frozen=True)
class RequestedArticle:
    """`is_new` if this request has started the article, or a new revision of it."""

    run: Run
    is_new: bool


async def request_article(
    client: Client,
    model: LanguageModel,
    request: ArticleRequest,
    *,
    regenerate: bool = False,
    by: str,
    key: str | None = None,
) -> RequestedArticle:
    """Start an article, or return the one that exists.

    With `regenerate`, a finished article gets a new revision, once per `key`, or once for all simultaneous requests
    without one. Raise BlogNotFound, KeyReused if the same article was requested with other optional fields, or
    NeedsLanguageModel if this model cannot write it.
    """
    await get_blog(client, request.blog_id)
    problem = find_theme_problem(model, request)
    if problem and not await client.runs.find_by_key(request.identity, article, tenant=request.blog_id):
        raise problem
    started = await client.start(article, request, tenant=request.blog_id, key=request.identity)
    run = await client.runs.get(started.id)
    if regenerate and not started.created and run.is_over:
        with suppress(RunBusy):  # another request has just done so: the article is in progress
            await regenerate_article(client, run, by=by, key=key)
        return RequestedArticle(await client.runs.get(run.id), is_new=True)
    return RequestedArticle(run, is_new=started.created)


async def get_article_run(client: Client, job: UUID) -> Run:
    """Return the run of an article. Raise NotFound for a run of another pipeline too."""
    run = await client.runs.get(job)
    if run.pipeline != article.name:
        raise NotFound(f"there is no article {job}")
    return run


async def list_article_runs(
    client: Client,
    *,
    blog_id: str | None = None,
    state: ArticleState | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> list[Run]:
    """Return articles, newest first. Those that ended with errors are listed both as done and as failed."""
    states: Sequence[RunState] | None = None if state is None else states_of(state)
    return await client.runs.list(tenant=blog_id, pipeline=article.name, states=states, before=before, limit=limit)


async def cancel_article(client: Client, run: Run, *, by: str, key: str | None = None) -> RunState:
    return await client.runs.cancel(run.id, by=by, key=key)


async def resume_article(client: Client, run: Run, *, by: str, key: str | None = None) -> RunState:
    """Continue a failed or stuck article where it stopped."""
    return await client.runs.resume(run.id, by=by, key=key)


async def rerun_part(
    client: Client,
    run: Run,
    *,
    group: Group | None = None,
    step: str | None = None,
    from_step: str | None = None,
    items: Sequence[str] | None = None,
    downstream: bool = True,
    by: str,
    key: str | None = None,
) -> Revision:
    """Rerun a group of steps, one step, or everything from a step on, at the next revision.

    Dependents follow, or with `downstream=False` become stale. Raise Conflict for an article that a person ended.
    """
    await _check_can_rerun(client, run)
    return await client.runs.rerun(
        run.id,
        *([step] if step else []),
        group=group,
        from_step=from_step,
        items=items,
        downstream=downstream,
        by=by,
        key=key,
    )


async def rerun_stale(client: Client, run: Run, *, by: str, key: str | None = None) -> Revision:
    """Rerun every result whose inputs have changed since."""
    await _check_can_rerun(client, run)
    return await client.runs.rerun(run.id, stale=True, by=by, key=key)


async def regenerate_article(client: Client, run: Run, *, by: str, key: str | None = None) -> Revision:
    """Write the whole article again with the current code, as a new revision of the same post.

    Simultaneous calls without a key write one revision. Raise RunBusy while the article is being written.
    """
    await _check_can_rerun(client, run)
    is_repeated = key is not None and await client.runs.has_action(run.id, key)
    if run.state is RunState.RUNNING and not is_repeated:
        raise RunBusy(f"article {run.id} is being written: regenerate it once it has ended, or cancel it")
    return await client.runs.rerun(
        run.id, from_step=FIRST_STEP, by=by, reason="regenerate", key=key or f"regenerate revision {run.revision}"
    )


async def _check_can_rerun(client: Client, run: Run) -> None:
    if ending := await find_ending(client, run):
        raise Conflict(
            f"{ending.by} ended article {run.id} ({ending.reason}), and it stays so: request it with another theme or "
            "objective"
        )
