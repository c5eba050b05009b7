"""How the work goes, against the targets that were set for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from starlette.responses import Response

from retoma.records import PipelineFigures, ReviewFigures
from retoma.server import Page, Visit
from retoma_apps.videos.pages.common import Common
from retoma_apps.videos.pages.words import Words
from retoma_apps.videos.pipeline import longform

ROUTE = "/videos/metrics"
SINCE = timedelta(days=30)
NOT_WORK = ["publication"]  # it waits for the day, and for the channel
LONGEST_WAIT = 2 * 3600
LEAST_APPROVED = 0.85
MOST_RETRIED = 0.10
LONGEST_RUN = 30 * 60
MOST_FAILED = 0.02


@dataclass(frozen=True)
class Metric:
    """`value` is in seconds, or a share; None if there is nothing to tell of yet. `of` says what it was made of."""

    name: str
    value: float | None
    target: float
    is_share: bool
    of: str
    is_least: bool = False

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "no data"
        is_met = self.value > self.target if self.is_least else self.value < self.target
        return "met" if is_met else "missed"


class Metrics:
    def __init__(self, common: Common) -> None:
        self._common = common

    @property
    def pages(self) -> tuple[Page, ...]:
        return (Page(ROUTE, self.show),)

    async def show(self, visit: Visit) -> Response:
        values = await self._common.values(visit)
        since = values["now"] - SINCE
        asked = await visit.client.review_figures(longform.name, since)
        ran = await visit.client.pipeline_figures(longform.name, since, without=NOT_WORK)
        return visit.show("videos_metrics.html", metrics=list(_metrics(visit, asked, ran)), **values)


def _metrics(visit: Visit, asked: ReviewFigures, ran: PipelineFigures) -> Iterator[Metric]:
    say, number = Words(visit.language), visit.formats.number

    def counted(name: str, part: int, count: int) -> str:
        return say(name, part=number(part), count=number(count))

    decisions = say("of reviews", count=number(asked.decided))
    median = visit.formats.duration(ran.median_seconds)
    yield Metric("wait", asked.mean_wait, LONGEST_WAIT, False, decisions)
    yield Metric(
        "first",
        _share(asked.approved_at_once, asked.first_decided),
        LEAST_APPROVED,
        True,
        counted("of first", asked.approved_at_once, asked.first_decided),
        is_least=True,
    )
    yield Metric(
        "retry", _share(ran.retried, ran.steps), MOST_RETRIED, True, counted("of steps", ran.retried, ran.steps)
    )
    yield Metric("time", ran.mean_seconds, LONGEST_RUN, False, say("of times", count=number(ran.timed), time=median))
    yield Metric("failed", _share(ran.failed, ran.ended), MOST_FAILED, True, counted("of runs", ran.failed, ran.ended))


def _share(part: int, count: int) -> float | None:
    return part / count if count else None
