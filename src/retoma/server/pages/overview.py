"""The overview: what needs somebody, and how everything goes."""

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
    """Something that needs somebody, with the one place where it is solved."""

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
    number, t = context.formats.number, context.translate
    overdue = sum(each.overdue for each in review_counts)
    late = t("overdue", count=number(overdue)) if overdue else t("none overdue")
    many = f"{MAX_FAILED_RUNS}+" if len(failed) == MAX_FAILED_RUNS else number(len(failed))
    return [
        StatCard(
            t("queued"),
            "ring",
            "wait",
            number(jobs["ready"]),
            t("oldest", time=context.formats.duration(oldest)),
            "/pools",
        ),
        StatCard(
            t("jobs running"),
            "run",
            "run",
            number(jobs["running"]),
            t("of workers", count=number(snapshot.workers)),
            "/workers",
        ),
        StatCard(t("for people"), "hand", "human", number(sum(each.open for each in review_counts)), late, "/reviews"),
        StatCard(t("open runs"), "runs", "wait", number(snapshot.open_runs), t("not over"), "/runs"),
        StatCard(
            t("stuck runs"),
            "stuck",
            "stuck",
            number(snapshot.stuck),
            t("need a push"),
            "/stuck",
        ),
        StatCard(t("failed in a day"), "fail", "fail", many, t("runs that failed"), "/runs?state=failed"),
        StatCard(
            t("dead letters"),
            "dead",
            "fail",
            number(snapshot.deliveries.dead),
            t("webhooks given up"),
            "/deliveries?state=dead",
        ),
    ]


def _stuck_tasks(context: PageContext, stuck: list[Stuck], now: datetime) -> list[Task]:
    return [
        Task(
            "stuck",
            "stuck",
            context.translate("run is stuck", pipeline=each.pipeline),
            context.translate("of tenant", tenant=each.tenant, run=_name_run(each.run, each.run_title)),
            context.formats.ago(each.since, now),
            f"/runs/{each.run}",
            context.translate("open"),
        )
        for each in stuck
    ]


def _failed_tasks(context: PageContext, failed: list[Run], now: datetime) -> list[Task]:
    return [
        Task(
            "fail",
            "fail",
            context.translate("run failed", pipeline=run.pipeline),
            context.translate("of tenant", tenant=run.tenant, run=_name_run(run.id, run.title)),
            context.formats.ago(run.ended_at, now),
            f"/runs/{run.id}",
            context.translate("open"),
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
            context.translate("people are asked", count=number(each.open), step=context.get_step_label(each.step)),
            context.translate("people are asked why", pipeline=each.pipeline, overdue=number(each.overdue)),
            context.formats.ago(each.oldest_at, now),
            f"/reviews?{urlencode({'pipeline': each.pipeline, 'step': each.step})}",
            context.translate("review them"),
        )
        for each in review_counts[:MAX_TASKS_PER_KIND]
    ]


def _unserved_queue_tasks(context: PageContext, snapshot: MetricsSnapshot) -> list[Task]:
    """Queues with work and nobody to do it."""
    left = [queue for queue in snapshot.queues if queue.jobs.get("ready") and not queue.workers]
    return [
        Task(
            "stuck",
            "warn",
            context.translate("nobody serves", queue=queue.queue),
            context.translate("start a worker", jobs=context.formats.number(queue.jobs["ready"]), queue=queue.queue),
            context.formats.duration(queue.oldest_for),
            "/workers",
            context.translate("see workers"),
        )
        for queue in left
    ]


def _dead_letter_tasks(context: PageContext, snapshot: MetricsSnapshot) -> list[Task]:
    dead = snapshot.deliveries.dead
    if not dead:
        return []
    what, why = (
        context.translate("dead deliveries", count=context.formats.number(dead)),
        context.translate("send them again"),
    )
    return [Task("dead", "fail", what, why, "", "/deliveries?state=dead", context.translate("see deliveries"))]


PAGES = (Page("/", show_overview),)
