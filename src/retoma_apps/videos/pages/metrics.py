"""How the work goes, against the targets that were set for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from starlette.responses import Response

from retoma.records import PipelineMetrics, ReviewMetrics
from retoma.server import Page, PageContext
from retoma_apps.videos.pages.common import PageSupport
from retoma_apps.videos.pages.words import Words
from retoma_apps.videos.pipeline import longform

ROUTE = "/videos/metrics"
PERIOD = timedelta(days=30)
WAITING_STEPS = ["publication"]  # it waits for the day, and for the channel
MAX_REVIEW_WAIT = 2 * 3600
MIN_APPROVED_SHARE = 0.85
MAX_RETRIED_SHARE = 0.10
MAX_RUN_SECONDS = 30 * 60
MAX_FAILED_SHARE = 0.02


@dataclass(frozen=True)
class Metric:
    """`value` is in seconds, or a share; None if there is nothing to tell of yet. `of` says what it was made of."""

    name: str
    value: float | None
    target: float
    is_share: bool
    basis: str
    is_minimum: bool = False

    @property
    def result(self) -> str:
        if self.value is None:
            return "no data"
        is_met = self.value > self.target if self.is_minimum else self.value < self.target
        return "met" if is_met else "missed"


class MetricsPage:
    def __init__(self, common: PageSupport) -> None:
        self._common = common

    @property
    def pages(self) -> tuple[Page, ...]:
        return (Page(ROUTE, self.show),)

    async def show(self, visit: PageContext) -> Response:
        values = await self._common.get_values(visit)
        since = values["now"] - PERIOD
        asked = await visit.client.reviews.get_metrics(longform.name, since)
        ran = await visit.client.metrics.get_pipeline(longform.name, since, exclude_steps=WAITING_STEPS)
        return visit.render("videos_metrics.html", metrics=list(_metrics(visit, asked, ran)), **values)


def _metrics(visit: PageContext, reviews: ReviewMetrics, runs: PipelineMetrics) -> Iterator[Metric]:
    say, number = Words(visit.language), visit.formats.number

    def counted(name: str, part: int, count: int) -> str:
        return say(name, part=number(part), count=number(count))

    decisions = say("of reviews", count=number(reviews.decided))
    median = visit.formats.duration(runs.median_seconds)
    yield Metric("wait", reviews.mean_wait, MAX_REVIEW_WAIT, False, decisions)
    yield Metric(
        "first",
        _share(reviews.approved_at_once, reviews.first_decided),
        MIN_APPROVED_SHARE,
        True,
        counted("of first", reviews.approved_at_once, reviews.first_decided),
        is_minimum=True,
    )
    yield Metric(
        "retry",
        _share(runs.retried, runs.steps),
        MAX_RETRIED_SHARE,
        True,
        counted("of steps", runs.retried, runs.steps),
    )
    yield Metric(
        "time", runs.mean_seconds, MAX_RUN_SECONDS, False, say("of times", count=number(runs.timed), time=median)
    )
    yield Metric(
        "failed", _share(runs.failed, runs.ended), MAX_FAILED_SHARE, True, counted("of runs", runs.failed, runs.ended)
    )


def _share(part: int, count: int) -> float | None:
    return part / count if count else None
