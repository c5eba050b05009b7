"""Metrics of the videos, compared with their targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from starlette.responses import Response

from retoma.records import PipelineMetrics, ReviewMetrics
from retoma.server import Page, PageContext
from retoma_apps.videos.pages.common import VideoPages
from retoma_apps.videos.pages.messages import METRIC_NAMES, METRIC_RESULTS
from retoma_apps.videos.pipeline import longform

ROUTE = "/videos/metrics"
PERIOD = timedelta(days=30)
WAITING_STEPS = ["publication"]  # waits for the scheduled time and the channel
MAX_REVIEW_WAIT = 2 * 3600
MIN_APPROVED_SHARE = 0.85
MAX_RETRIED_SHARE = 0.10
MAX_RUN_SECONDS = 30 * 60
MAX_FAILED_SHARE = 0.02


@dataclass(frozen=True)
class Metric:
    """`value` is in seconds or a share; None without data. `basis` says what it was computed from."""

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


class MetricsPage(VideoPages):
    @property
    def pages(self) -> tuple[Page, ...]:
        return (Page(ROUTE, self.show),)

    async def show(self, context: PageContext) -> Response:
        values = await self.get_values(context)
        since = values["now"] - PERIOD
        asked = await context.client.reviews.get_metrics(longform.name, since)
        ran = await context.client.metrics.get_pipeline(longform.name, since, exclude_steps=WAITING_STEPS)
        return context.render(
            "videos_metrics.html",
            metrics=list(_metrics(context, asked, ran)),
            metric_name=lambda metric: context.translate(METRIC_NAMES[metric.name]),
            metric_result=lambda metric: context.translate(METRIC_RESULTS[metric.result]),
            **values,
        )


def _metrics(context: PageContext, reviews: ReviewMetrics, runs: PipelineMetrics) -> Iterator[Metric]:
    gettext, ngettext, number = context.gettext, context.ngettext, context.formats.number

    def counts(part: int, count: int) -> dict[str, str]:
        return {"part": number(part), "count": number(count)}

    decisions = ngettext("%(count)s decision", "%(count)s decisions", reviews.decided, count=number(reviews.decided))
    median = context.formats.duration(runs.median_seconds)
    yield Metric("wait", reviews.mean_wait, MAX_REVIEW_WAIT, False, decisions)
    yield Metric(
        "first",
        _share(reviews.approved_at_once, reviews.first_decided),
        MIN_APPROVED_SHARE,
        True,
        ngettext(
            "%(part)s of %(count)s first decision",
            "%(part)s of %(count)s first decisions",
            reviews.first_decided,
            **counts(reviews.approved_at_once, reviews.first_decided),
        ),
        is_minimum=True,
    )
    yield Metric(
        "retry",
        _share(runs.retried, runs.steps),
        MAX_RETRIED_SHARE,
        True,
        ngettext(
            "%(part)s of %(count)s finished step, including videos in progress",
            "%(part)s of %(count)s finished steps, including videos in progress",
            runs.steps,
            **counts(runs.retried, runs.steps),
        ),
    )
    yield Metric(
        "time",
        runs.mean_seconds,
        MAX_RUN_SECONDS,
        False,
        gettext(
            "finished videos, published or scheduled: %(count)s; half of them within %(time)s",
            count=number(runs.timed),
            time=median,
        ),
    )
    yield Metric(
        "failed",
        _share(runs.failed, runs.ended),
        MAX_FAILED_SHARE,
        True,
        ngettext(
            "%(part)s of %(count)s video that ended",
            "%(part)s of %(count)s videos that ended",
            runs.ended,
            **counts(runs.failed, runs.ended),
        ),
    )


def _share(part: int, count: int) -> float | None:
    return part / count if count else None
