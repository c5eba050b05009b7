"""The overview: what needs somebody, and how everything goes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from starlette.responses import Response

from retoma.figures import Standing
from retoma.records import ReviewCount, Run, Stuck
from retoma.server.pages.page import Page
from retoma.server.pages.visit import Visit
from retoma.states import RunState

DAY = timedelta(hours=24)
MOST_FAILED = 100
MOST_SHOWN = 5


@dataclass(frozen=True)
class Figure:
    name: str
    icon: str
    colour: str
    value: str
    under: str
    link: str


@dataclass(frozen=True)
class Task:
    """Something that needs somebody, with the one place where it is solved."""

    icon: str
    colour: str
    what: str
    why: str
    age: str
    link: str
    button: str


async def show(visit: Visit) -> Response:
    client = visit.client
    now, figures = await client.now(), await client.standing()
    failed = await client.runs(states=[RunState.FAILED], since=now - DAY, limit=MOST_FAILED, with_input=False)
    stuck = await client.stuck(limit=MOST_SHOWN)
    asked = await client.review_counts()
    return visit.show(
        "overview.html",
        figures=_figures(visit, figures, failed, asked),
        tasks=[
            *_stuck(visit, stuck, now),
            *_unserved(visit, figures),
            *_dead(visit, figures),
            *_asked(visit, asked, now),
            *_failed(visit, failed, now),
        ],
        pools=figures.pools,
        queues=sorted(figures.queues, key=lambda queue: queue.oldest_for or timedelta(), reverse=True),
    )


def _figures(visit: Visit, figures: Standing, failed: list[Run], asked: list[ReviewCount]) -> list[Figure]:
    jobs = {state: sum(queue.jobs.get(state, 0) for queue in figures.queues) for state in ("ready", "running")}
    oldest = max((queue.oldest_for for queue in figures.queues if queue.oldest_for), default=None)
    number, t = visit.formats.number, visit.say
    overdue = sum(each.overdue for each in asked)
    late = t("overdue", count=number(overdue)) if overdue else t("none overdue")
    many = f"{MOST_FAILED}+" if len(failed) == MOST_FAILED else number(len(failed))
    return [
        Figure(
            t("queued"),
            "ring",
            "wait",
            number(jobs["ready"]),
            t("oldest", time=visit.formats.duration(oldest)),
            "/pools",
        ),
        Figure(
            t("jobs running"),
            "run",
            "run",
            number(jobs["running"]),
            t("of workers", count=number(figures.workers)),
            "/workers",
        ),
        Figure(t("for people"), "hand", "human", number(sum(each.open for each in asked)), late, "/reviews"),
        Figure(t("open runs"), "runs", "wait", number(figures.open_runs), t("not over"), "/runs"),
        Figure(
            t("stuck runs"),
            "stuck",
            "stuck",
            number(figures.stuck),
            t("need a push"),
            "/stuck",
        ),
        Figure(t("failed in a day"), "fail", "fail", many, t("runs that failed"), "/runs?state=failed"),
        Figure(
            t("dead letters"),
            "dead",
            "fail",
            number(figures.deliveries.dead),
            t("webhooks given up"),
            "/deliveries?state=dead",
        ),
    ]


def _stuck(visit: Visit, stuck: list[Stuck], now: datetime) -> list[Task]:
    return [
        Task(
            "stuck",
            "stuck",
            visit.say("run is stuck", pipeline=each.pipeline),
            visit.say("of tenant", tenant=each.tenant, run=str(each.run)[:13]),
            visit.formats.ago(each.since, now),
            f"/runs/{each.run}",
            visit.say("open"),
        )
        for each in stuck
    ]


def _failed(visit: Visit, failed: list[Run], now: datetime) -> list[Task]:
    return [
        Task(
            "fail",
            "fail",
            visit.say("run failed", pipeline=run.pipeline),
            visit.say("of tenant", tenant=run.tenant, run=str(run.id)[:13]),
            visit.formats.ago(run.ended_at, now),
            f"/runs/{run.id}",
            visit.say("open"),
        )
        for run in failed[:MOST_SHOWN]
    ]


def _asked(visit: Visit, asked: list[ReviewCount], now: datetime) -> list[Task]:
    number = visit.formats.number
    return [
        Task(
            "hand",
            "human",
            visit.say("people are asked", count=number(each.open), step=visit.label(each.step)),
            visit.say("people are asked why", pipeline=each.pipeline, overdue=number(each.overdue)),
            visit.formats.ago(each.oldest_at, now),
            f"/reviews?{urlencode({'pipeline': each.pipeline, 'step': each.step})}",
            visit.say("review them"),
        )
        for each in asked[:MOST_SHOWN]
    ]


def _unserved(visit: Visit, figures: Standing) -> list[Task]:
    """Queues with work and nobody to do it."""
    left = [queue for queue in figures.queues if queue.jobs.get("ready") and not queue.workers]
    return [
        Task(
            "stuck",
            "warn",
            visit.say("nobody serves", queue=queue.queue),
            visit.say("start a worker", jobs=visit.formats.number(queue.jobs["ready"]), queue=queue.queue),
            visit.formats.duration(queue.oldest_for),
            "/workers",
            visit.say("see workers"),
        )
        for queue in left
    ]


def _dead(visit: Visit, figures: Standing) -> list[Task]:
    dead = figures.deliveries.dead
    if not dead:
        return []
    what, why = visit.say("dead deliveries", count=visit.formats.number(dead)), visit.say("send them again")
    return [Task("dead", "fail", what, why, "", "/deliveries?state=dead", visit.say("see deliveries"))]


PAGES = (Page("/", show),)
