"""The page of one article, and the actions on it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial

from starlette.responses import Response

from retoma import GiveUp, RetryLater
from retoma.errors import InvalidInput
from retoma.records import Review, Revision, Run, StepProgress
from retoma.server import Page, PageContext, build_file_url, get_step_display_state
from retoma.states import RunState
from retoma_apps.autowriter.operations import articles
from retoma_apps.autowriter.operations.blogs import list_blogs
from retoma_apps.autowriter.operations.details import get_details
from retoma_apps.autowriter.operations.notifications import refresh_events
from retoma_apps.autowriter.operations.preview import build_preview
from retoma_apps.autowriter.pages import messages
from retoma_apps.autowriter.pages.article_html import render_article
from retoma_apps.autowriter.pages.common import HOME, build_article_url, get_common_values, get_safe_link
from retoma_apps.autowriter.pipeline import article

ROUTE = f"{HOME}{{article}}"


async def show_article(context: PageContext) -> Response:
    run = await _get_run(context)
    last_event = await context.client.runs.get_last_event_id(run.id)  # read first, so no later event is missed
    details = await get_details(context.client, run)
    summary = details.summary
    preview = build_preview(summary.results, summary.request.language)
    file_url = partial(build_file_url, run)
    return context.render(
        "autowriter_article.html",
        run=run,
        details=details,
        preview=preview,
        body=await asyncio.to_thread(render_article, preview.html, preview.images, file_url),
        file_url=file_url,
        draft_url=get_safe_link(summary.published.edit_url) if summary.published else None,
        blog=(await list_blogs(context.client)).get(summary.request.blog_id),
        last_event=last_event,
        charges={step: [each for each in details.charges if each.step == step] for step in article.steps},
        may_rerun=run.state.can_run,
        may_resume=run.state in (RunState.FAILED, RunState.STUCK),
        rerun_steps=[name for name, step in article.steps.items() if not step.review],
        stale_names=", ".join(context.get_step_label(step) for step in details.stale),
        step_state=partial(_get_step_state, run, details.review),
        parse_time=datetime.fromisoformat,
        event_name=lambda kind: context.translate(messages.EVENT_NAMES[kind]) if kind in messages.EVENT_NAMES else kind,
        notes=summary.notes,
        check_name=lambda check: context.translate(messages.CHECK_NAMES[check]),
        describe_finding=partial(messages.describe_finding, context.translator),
        describe_code=partial(messages.describe_code, context.translator),
        **await get_common_values(context),
    )


async def rerun_article(context: PageContext) -> Response:
    run = await _get_run(context)
    revision = await _rerun(context, run)
    return context.redirect(build_article_url(run.id), "rerun_started" if revision.jobs else "nothing_to_rerun")


async def resume_article(context: PageContext) -> Response:
    run = await _get_run(context)
    await articles.resume_article(context.client, run, by=context.by, key=context.idempotency_key)
    return context.redirect(build_article_url(run.id), "resumed")


async def cancel_article(context: PageContext) -> Response:
    run = await _get_run(context)
    await articles.cancel_article(context.client, run, by=context.by, key=context.idempotency_key)
    return context.redirect(build_article_url(run.id), "canceled")


async def refresh_article(context: PageContext) -> Response:
    """Ask WordPress for the events of an article."""
    run = await _get_run(context)
    try:
        await refresh_events(context.client, run)
    except (RetryLater, GiveUp):
        return context.redirect(build_article_url(run.id), "unreachable")
    return context.redirect(build_article_url(run.id), "refreshed")


def _get_step_state(run: Run, review: Review | None, step: StepProgress) -> str:
    """Return the state of a step as people should read it."""
    is_reviewed = review is not None and review.step == step.step
    return "in_review" if is_reviewed else get_step_display_state(step, run.state)


async def _get_run(context: PageContext) -> Run:
    return await articles.get_article_run(context.client, context.get_path_id("article"))


async def _rerun(context: PageContext, run: Run) -> Revision:
    """Rerun what the form names."""
    what, step = context.fields.get("what", ""), context.fields.get("step", "")
    rerun = partial(articles.rerun_part, context.client, run, by=context.by, key=context.idempotency_key)
    match what:
        case "images" | "seo" | "body":
            return await rerun(group=what)
        case "stale":
            return await articles.rerun_stale(context.client, run, by=context.by, key=context.idempotency_key)
        case "all":
            return await articles.regenerate_article(context.client, run, by=context.by, key=context.idempotency_key)
        case "step" if step:
            return await rerun(step=step)
        case "step_only" if step:
            return await rerun(step=step, downstream=False)
        case "from_step" if step:
            return await rerun(from_step=step)
        case _:
            raise InvalidInput(context.gettext("This form does not name an action."))


PAGES = (
    Page(ROUTE, show_article),
    Page(f"{ROUTE}/rerun", submit=rerun_article, submit_scope="runs:write"),
    Page(f"{ROUTE}/resume", submit=resume_article, submit_scope="runs:write"),
    Page(f"{ROUTE}/cancel", submit=cancel_article, submit_scope="runs:write"),
    Page(f"{ROUTE}/refresh", submit=refresh_article, submit_scope="runs:write"),
)
