"""When each step waited, worked, and had its work done outside, on one axis. Pure.

Where nothing went on for long, the axis is squeezed: the band has one width, whatever its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from retoma.records import Outside, StepProgress
from retoma.states import JOB_ENDS

IDLE = timedelta(minutes=10)
BAND = 5.0  # percent of the axis
THINNEST = 0.4
TICKS = 5


@dataclass(frozen=True)
class Span:
    first: datetime
    last: datetime


@dataclass(frozen=True)
class Bar:
    """Percent of the axis. `kind` is queue, run or outside."""

    kind: str
    x: float
    width: float
    lasted: timedelta


@dataclass(frozen=True)
class Lane:
    step: str
    bars: list[Bar]
    lasted: timedelta | None


@dataclass(frozen=True)
class Band:
    x: float
    width: float
    lasted: timedelta


@dataclass(frozen=True)
class Tick:
    x: float
    at: datetime


@dataclass(frozen=True)
class Waterfall:
    lanes: list[Lane]
    bands: list[Band]
    ticks: list[Tick]
    totals: dict[str, timedelta]


def drawn(
    steps: Sequence[StepProgress],
    needs: Mapping[str, Sequence[str]],
    outside: Sequence[Outside],
    begins: datetime,
    ends: datetime,
) -> Waterfall:
    """`ends` is the run's end, or now. A step is in the queue from when its needs are over."""
    over = {step.step: _over(step) for step in steps}
    parts = {
        step.step: _parts(step, [over.get(need) for need in needs.get(step.step, ())], outside, ends) for step in steps
    }
    axis = Axis(begins, ends, [span for spans in parts.values() for kind, span in spans if kind != "queue"])
    lanes = [_lane(step, parts[step.step], axis) for step in steps]
    totals = {
        kind: sum((bar.lasted for lane in lanes for bar in lane.bars if bar.kind == kind), timedelta())
        for kind in ("queue", "run", "outside")
    }
    return Waterfall(lanes, axis.bands, axis.ticks, totals)


class Axis:
    """Maps times to percent, with what is idle for long squeezed into bands."""

    def __init__(self, begins: datetime, ends: datetime, active: list[Span]) -> None:
        self._idle = list(_idle(begins, max(begins, ends), active))
        self._begins, self._ends = begins, max(begins, ends)
        squeezed = sum((span.last - span.first for span in self._idle), timedelta())
        shown = (self._ends - begins - squeezed).total_seconds()
        self._per_second = (100 - BAND * len(self._idle)) / shown if shown > 0 else 0.0
        self.bands = [Band(self.x(span.first), BAND, span.last - span.first) for span in self._idle]
        self.ticks = [Tick(self.x(at), at) for at in self._marks()]

    def x(self, at: datetime) -> float:
        at = min(max(at, self._begins), self._ends)
        seconds, bands = (at - self._begins).total_seconds(), 0.0
        for span in self._idle:
            if at <= span.first:
                break
            within = min(at, span.last) - span.first
            seconds -= within.total_seconds()
            bands += BAND * (within / (span.last - span.first))
        return round(min(100.0, seconds * self._per_second + bands), 2)

    def _marks(self) -> list[datetime]:
        return [self._begins + (self._ends - self._begins) * number / (TICKS - 1) for number in range(TICKS)]


def _idle(begins: datetime, ends: datetime, active: list[Span]) -> Iterable[Span]:
    reached = begins
    for span in sorted(active, key=lambda each: each.first):
        if span.first - reached > IDLE:
            yield Span(reached, span.first)
        reached = max(reached, span.last)
    if active and ends - reached > IDLE:
        yield Span(reached, ends)


def _over(step: StepProgress) -> datetime | None:
    """When its last job ended; None while one has not, or there is none."""
    return step.ended_at if step.jobs and all(state in JOB_ENDS for state in step.jobs) else None


def _parts(
    step: StepProgress, needs: Sequence[datetime | None], outside: Iterable[Outside], ends: datetime
) -> list[tuple[str, Span]]:
    if step.created_at is None or (step.started_at is None and None in needs):
        return []
    last = _over(step) or ends
    began = step.started_at or last
    ready = max([step.created_at, *(need for need in needs if need)])
    waited = [("queue", Span(ready, began))]
    worked = [("run", Span(began, last))] if step.started_at else []
    away = [("outside", Span(one.parked_at, one.ended_at or ends)) for one in outside if one.step == step.step]
    return [(kind, span) for kind, span in (*waited, *worked, *away) if span.last >= span.first]


def _lane(step: StepProgress, parts: list[tuple[str, Span]], axis: Axis) -> Lane:
    bars = [_bar(kind, span, axis) for kind, span in parts]
    run = next((span for kind, span in parts if kind == "run"), None)
    return Lane(step.step, bars, None if run is None else run.last - run.first)


def _bar(kind: str, span: Span, axis: Axis) -> Bar:
    x = axis.x(span.first)
    width = max(axis.x(span.last) - x, THINNEST)
    return Bar(
        kind, min(x, 100 - THINNEST), round(min(width, 100 - x) if x < 100 else THINNEST, 2), span.last - span.first
    )
