"""Metrics of reviewers: waits, first-pass approval, decisions per hour and load, against targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from retoma.metrics import ReviewDay
from retoma.records import Scope
from retoma.server.pages.charts import Chart, draw_bars, draw_line
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.settings import Settings

PERIODS = (7, 30, 90)  # days


@dataclass(frozen=True)
class Goal:
    """A target and whether it is met; `is_met` is None without data."""

    target: str
    is_met: bool | None


async def show_reviewers(context: PageContext) -> Response:
    client, query = context.client, context.query
    settings: Settings = context.request.app.state.settings
    target = timedelta(minutes=settings.review_target_minutes)
    period = next((each for each in PERIODS if str(each) == query.get("days")), PERIODS[0])
    now = await client.now()
    today = now.astimezone(context.time_zone).replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - timedelta(days=period - 1)
    chosen: dict[str, Any] = {"tenant": query.get("tenant") or None, "pipeline": context.get_query_pipelines()}
    together, *people = await client.metrics.list_reviewers(since, target=target, **chosen)
    days = await client.metrics.list_review_days(since, context.time_zone.key, **chosen)
    first_pass = together.first_pass_share
    return context.render(
        "reviewers.html",
        together=together,
        people=people,
        wait_goal=Goal(
            context.formats.duration(target),
            None if together.median_wait is None else together.median_wait <= target.total_seconds(),
        ),
        first_pass_goal=Goal(
            context.formats.percent(settings.review_first_pass_target),
            None if first_pass is None else first_pass >= settings.review_first_pass_target,
        ),
        target_seconds=target.total_seconds(),
        tenants=await client.tenants.list_names(),
        charts=_draw_days(context, days, since, period),
        periods=PERIODS,
        period=period,
        filtered=any(chosen.values()),
    )


def _draw_days(context: PageContext, found: Sequence[ReviewDay], since: datetime, period: int) -> list[Chart]:
    """Draw decisions, waits and first-pass approval of each day."""
    days = [since.date() + timedelta(days=number) for number in range(period)]
    labels = [context.formats.day(day) for day in days]
    by_day = {each.day: each for each in found}
    decided = [by_day[day].decided if day in by_day else 0 for day in days]
    waits = [by_day[day].median_wait if day in by_day else None for day in days]
    shares = [
        each.approved_at_once / each.first_decided if (each := by_day.get(day)) and each.first_decided else None
        for day in days
    ]
    number, duration, percent = context.formats.number, context.formats.duration, context.formats.percent
    longest = max([0.0, *(each for each in waits if each is not None)])
    return [
        Chart(
            "decisions",
            context.gettext("Decisions"),
            context.gettext("Reviews that were decided on each day."),
            labels,
            number(max(decided)),
            draw_bars(labels, decided, number),
            [],
        ),
        Chart(
            "waits",
            context.gettext("Wait until the decision"),
            context.gettext("Half of the reviews of each day were decided within this time."),
            labels,
            duration(longest),
            [],
            [draw_line(context.gettext("Wait until the decision"), "warn", waits, longest or 1, duration)],
        ),
        Chart(
            "first-pass",
            context.gettext("First-pass approval"),
            context.gettext("The share of first decisions of each day that approved the work at once."),
            labels,
            percent(max([0.0, *(each for each in shares if each is not None)])),
            [],
            [draw_line(context.gettext("First-pass approval"), "run", shares, 1, percent)],
        ),
    ]


PAGES = (Page("/reviewers", show_reviewers, scope=Scope.REVIEWS_WRITE),)
