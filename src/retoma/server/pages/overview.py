"""The overview: current status and what needs attention."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode
from uuid import UUID

from starlette.responses import Response

from retoma.metrics import MetricsSnapshot
from retoma.records import ReviewCount, Run, Stuck
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.states import RunState

DAY = timedelta(hours=24)
MAX_FAILED_RUNS = 100
MAX_TASKS_PER_KIND = 5


@dataclass(frozen=True)
class StatCard:
    name: str
    icon: str
    colour: str
    value: str
    caption: str
    link: str


@dataclass(frozen=True)
class Task:
    """Something that needs attention, with the page where it can be resolved."""

    icon: str
    colour: str
    title: str
    detail: str
    age: str
    link: str
    button: str


async def show_overview(context: PageContext) -> Response:
    client = context.client
    now, figures = await client.now(), await client.metrics.get_snapshot()
    failed = await client.runs.list(states=[RunState.FAILED], since=now - DAY, limit=MAX_FAILED_RUNS, with_input=False)
    stuck = await client.runs.list_stuck(limit=MAX_TASKS_PER_KIND)
    asked = await client.reviews.count_open()
    return context.render(
        "overview.html",
        stats=_build_stat_cards(context, figures, failed, asked),
        tasks=[
            *_stuck_tasks(context, stuck, now),
            *_unserved_queue_tasks(context, figures),
            *_dead_letter_tasks(context, figures),
            *_review_tasks(context, asked, now),
            *_failed_tasks(context, failed, now),
        ],
        pools=figures.pools,
        queues=sorted(figures.queues, key=lambda queue: queue.oldest_for or timedelta(), reverse=True),
    )


def _build_stat_cards(
    context: PageContext, snapshot: MetricsSnapshot, failed: list[Run], review_counts: list[ReviewCount]
) -> list[StatCard]:
    jobs = {state: sum(queue.jobs.get(state, 0) for queue in snapshot.queues) for state in ("ready", "running")}
    oldest = max((queue.oldest_for for queue in snapshot.queues if queue.oldest_for), default=None)
    number, gettext = context.formats.number, context.gettext
    overdue = sum(each.overdue for each in review_counts)
    late = gettext("%(count)s overdue", count=number(overdue)) if overdue else gettext("none overdue")
    many = f"{MAX_FAILED_RUNS}+" if len(failed) == MAX_FAILED_RUNS else number(len(failed))
    return [
        StatCard(
            gettext("Queued jobs"),
            "ring",
            "wait",
            number(jobs["ready"]),
            gettext("oldest: %(time)s", time=context.formats.duration(oldest)),
            "/pools",
        ),
        StatCard(
            gettext("Jobs running"),
            "run",
            "run",
            number(jobs["running"]),
            gettext("workers running: %(count)s", count=number(snapshot.workers)),
            "/workers",
        ),
        StatCard(
            gettext("Waiting for review"),
            "hand",
            "human",
            number(sum(each.open for each in review_counts)),
            late,
            "/reviews",
        ),
        StatCard(
            gettext("Open runs"), "runs", "wait", number(snapshot.open_runs), gettext("not finished yet"), "/runs"
        ),
        StatCard(
            gettext("Stuck"),
            "stuck",
            "stuck",
            number(snapshot.stuck),
            gettext("no progress"),
            "/stuck",
        ),
        StatCard(gettext("Failed in 24 h"), "fail", "fail", many, gettext("runs"), "/runs?state=failed"),
        StatCard(
            gettext("Dead letters"),
            "dead",
            "fail",
            number(snapshot.deliveries.dead),
            gettext("undelivered webhooks"),
            "/deliveries?state=dead",
        ),
    ]


def _stuck_tasks(context: PageContext, stuck: list[Stuck], now: datetime) -> list[Task]:
    return [
        Task(
            "stuck",
            "stuck",
            context.gettext("A run of %(pipeline)s is stuck", pipeline=each.pipeline),
            context.gettext("%(run)s of %(tenant)s", tenant=each.tenant, run=_name_run(each.run, each.run_title)),
            context.formats.ago(each.since, now),
            f"/runs/{each.run}",
            context.pgettext("action", "Open"),
        )
        for each in stuck
    ]


def _failed_tasks(context: PageContext, failed: list[Run], now: datetime) -> list[Task]:
    return [
        Task(
            "fail",
            "fail",
            context.gettext("A run of %(pipeline)s failed", pipeline=run.pipeline),
            context.gettext("%(run)s of %(tenant)s", tenant=run.tenant, run=_name_run(run.id, run.title)),
            context.formats.ago(run.ended_at, now),
            f"/runs/{run.id}",
            context.pgettext("action", "Open"),
        )
        for run in failed[:MAX_TASKS_PER_KIND]
    ]


def _name_run(run: UUID, title: str | None) -> str:
    short = str(run)[:13]
    return f"{title} · {short}" if title else short


def _review_tasks(context: PageContext, review_counts: list[ReviewCount], now: datetime) -> list[Task]:
    number = context.formats.number
    return [
        Task(
            "hand",
            "human",
            f"{context.get_step_label(each.step)}: {number(each.open)}",
            context.gettext(
                "Reviews of %(pipeline)s await a decision; %(overdue)s overdue.",
                pipeline=each.pipeline,
                overdue=number(each.overdue),
            ),
            context.formats.ago(each.oldest_at, now),
            f"/reviews?{urlencode({'pipeline': each.pipeline, 'step': each.step})}",
            context.pgettext("action", "Review"),
        )
        for each in review_counts[:MAX_TASKS_PER_KIND]
    ]


def _unserved_queue_tasks(context: PageContext, snapshot: MetricsSnapshot) -> list[Task]:
    """List queues with jobs but without workers."""
    left = [queue for queue in snapshot.queues if queue.jobs.get("ready") and not queue.workers]
    return [
        Task(
            "stuck",
            "warn",
            context.gettext("No worker serves queue %(queue)s", queue=queue.queue),
            context.gettext(
                "Waiting jobs: %(jobs)s. Start a worker: retoma worker APP -q %(queue)s",
                jobs=context.formats.number(queue.jobs["ready"]),
                queue=queue.queue,
            ),
            context.formats.duration(queue.oldest_for),
            "/workers",
            context.gettext("View workers"),
        )
        for queue in left
    ]


def _dead_letter_tasks(context: PageContext, snapshot: MetricsSnapshot) -> list[Task]:
    dead = snapshot.deliveries.dead
    if not dead:
        return []
    what, why = (
        context.ngettext("%(count)s dead letter", "%(count)s dead letters", dead, count=context.formats.number(dead)),
        context.gettext("All delivery attempts failed. Redeliver them once the receiver works again."),
    )
    return [Task("dead", "fail", what, why, "", "/deliveries?state=dead", context.gettext("View deliveries"))]


PAGES = (Page("/", show_overview),)
