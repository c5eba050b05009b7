"""The home page: the applications, the current status and what needs attention."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from retoma.app import App
from retoma.metrics import MetricsSnapshot
from retoma.records import ReviewCount, Run, Scope
from retoma.server.pages.charts import Line, draw_line, draw_queues
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.states import RunState

HOUR, DAY = timedelta(hours=1), timedelta(hours=24)
COST_DAYS = 14
MAX_FAILED_RUNS = 100
MAX_TASKS_PER_KIND = 5


async def show_overview(context: PageContext) -> Response:
    client = context.client
    now, figures = await client.now(), await client.metrics.get_snapshot()
    failed = await client.runs.list(states=[RunState.FAILED], since=now - DAY, limit=MAX_FAILED_RUNS, with_input=False)
    review_counts = await client.reviews.count_open()
    lines = await _draw_jobs(context, now)
    cost, lines["cost"] = await _draw_cost(context, now)
    return context.render(
        "overview.html",
        now=now,
        figures=figures,
        applications=[
            _describe_application(context, each, figures, failed, review_counts)
            for each in context.services.applications
        ],
        jobs={state: sum(queue.jobs.get(state, 0) for queue in figures.queues) for state in ("ready", "running")},
        review_counts=review_counts,
        lines=lines,
        cost=cost,
        failed=failed,
        has_all_failed=len(failed) < MAX_FAILED_RUNS,
        failed_query=f"state=failed&since={(now - DAY).astimezone(context.time_zone):%Y-%m-%d}",
        stuck=await client.runs.list_stuck(limit=MAX_TASKS_PER_KIND),
        all_orphans=await client.runs.list_orphans(),
        unserved=[queue for queue in figures.queues if queue.jobs.get("ready") and not queue.workers],
        max_tasks=MAX_TASKS_PER_KIND,
        queues=sorted(figures.queues, key=lambda queue: queue.oldest_for or timedelta(), reverse=True),
    )


async def _draw_jobs(context: PageContext, now: datetime) -> dict[str, Line]:
    """Draw the jobs of the last hour; nothing for those who do not see the figures of all tenants."""
    if not context.may(Scope.METRICS_READ):
        return {}
    samples = await context.client.metrics.list_queue_samples(now - HOUR)
    ready, running = draw_queues(context, samples, now - HOUR, HOUR)[0].lines
    return {"ready": ready, "running": running}


async def _draw_cost(context: PageContext, now: datetime) -> tuple[int, Line]:
    """Return what was charged today, and draw the last days, in the viewer's time zone."""
    today = now.astimezone(context.time_zone).replace(hour=0, minute=0, second=0, microsecond=0)
    first = today.date() - timedelta(days=COST_DAYS - 1)
    by_day = await context.client.costs.get_by_day(today - timedelta(days=COST_DAYS - 1), context.time_zone.key)
    costs = [by_day.get(first + timedelta(days=number), 0) for number in range(COST_DAYS)]
    return costs[-1], draw_line("", "human", costs, max(1, *costs), str)


def _describe_application(
    context: PageContext,
    application: App,
    figures: MetricsSnapshot,
    failed: Iterable[Run],
    review_counts: Iterable[ReviewCount],
) -> dict[str, Any]:
    """Return the texts of an application and what waits, runs and failed in it. `path` is that of its main page."""
    own, translator = application.own_pipelines, context.services.get_translator(context.language, application)
    return {
        "name": application.name,
        "title": translator.gettext(application.title),
        "description": translator.gettext(application.description) if application.description else "",
        "path": next((page.path for page in application.pages if page.nav), None),
        "waiting": sum(each.open for each in review_counts if each.pipeline in own),
        "running": sum(
            runs for (name, state), runs in figures.oldest_runs.items() if name in own and state is RunState.RUNNING
        ),
        "failed": sum(run.pipeline in own for run in failed),
    }


PAGES = (Page("/", show_overview),)
