"""When each step was queued, ran, waited for external work and for a reviewer, on one axis. Pure.

Long idle periods are compressed into bands of one width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from retoma.records import ExternalWork, FailedAttempt, Job, Review, StepProgress

MIN_IDLE = timedelta(minutes=10)
BAND_WIDTH = 5.0  # percent of the axis
LABEL_WIDTH = 12.0  # percent of the axis that a label takes
MIN_BAR_WIDTH = 0.4
TICK_COUNT = 5


@dataclass(frozen=True)
class Span:
    start: datetime
    end: datetime


Part = tuple[str, Span]
IDLE_KINDS = ("queue", "again", "human")
TOTALS = {
    "queue": ("queue",),
    "run": ("run", "bad"),
    "again": ("again",),
    "external": ("external",),
    "child": ("child",),
    "human": ("human",),
}


@dataclass(frozen=True)
class Bar:
    """Percent of the axis. `kind` is queue, run, bad (a failed attempt), again (the delay before a retry), external,
    child (a wait for a child run) or human (a wait for a reviewer)."""

    kind: str
    x: float
    width: float
    duration: timedelta


@dataclass(frozen=True)
class Lane:
    """The bars of a step, or of one of its items."""

    step: str
    item: str | None
    bars: list[Bar]
    duration: timedelta | None


@dataclass(frozen=True)
class Band:
    """`label_x` is the position of the label's `anchor`, always within the axis, or None if there is no room for it.
    `on_phones` if the label is shown on a narrow screen too."""

    x: float
    width: float
    duration: timedelta
    label_x: float | None = None
    anchor: str = "middle"
    on_phones: bool = False


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
    review_time: timedelta
    """How long reviews were open. Overlapping reviews count once."""


def draw_waterfall(
    steps: Sequence[StepProgress],
    dependencies: Mapping[str, Sequence[str]],
    external_work: Sequence[ExternalWork],
    start: datetime,
    end: datetime,
    failed_attempts: Sequence[FailedAttempt] = (),
    job: Job | None = None,
    reviews: Sequence[Review] = (),
) -> Waterfall:
    """Build the timeline until `ends`, the end of the run or now. A step is queued once its dependencies have ended.

    `failed_attempts` are shown one by one for steps that have one job; `job` is of an item that gets its own lane.
    """
    over = {step.step: _end_of_step(step) for step in steps}
    parts = {
        step.step: _add_reviews(
            _build_parts(
                step, [over.get(need) for need in dependencies.get(step.step, ())], external_work, failed_attempts, end
            ),
            [review for review in reviews if review.step == step.step],
            end,
        )
        for step in steps
    }
    axis = Axis(start, end, [span for spans in parts.values() for kind, span in spans if kind not in IDLE_KINDS])
    lanes = [_build_lane(step, parts[step.step], axis) for step in steps]
    totals = {
        kind: sum((bar.duration for lane in lanes for bar in lane.bars if bar.kind in kinds), timedelta())
        for kind, kinds in TOTALS.items()
    }
    people = _merge_spans([_review_span(review, end) for review in reviews])
    return Waterfall(
        _add_item_lane(lanes, job, failed_attempts, axis, end),
        axis.bands,
        axis.ticks,
        totals,
        review_time=_sum_spans(people),
    )


def _add_item_lane(
    lanes: list[Lane], job: Job | None, failed_attempts: Sequence[FailedAttempt], axis: Axis, end: datetime
) -> list[Lane]:
    """Insert the lane of one item below that of its step."""
    if job is None:
        return lanes
    worked = _attempt_parts(
        [each for each in failed_attempts if (each.step, each.item) == (job.step, job.item)], job, end
    )
    bars = [_build_bar(kind, span, axis) for kind, span in worked]
    lasted = job.ended_at - job.started_at if job.ended_at and job.started_at else None
    place = next((number for number, lane in enumerate(lanes) if lane.step == job.step), len(lanes)) + 1
    return [*lanes[:place], Lane(job.step, job.item, bars, lasted), *lanes[place:]]


class Axis:
    """Maps times to percent, with long idle periods compressed into bands."""

    def __init__(self, start: datetime, end: datetime, active: list[Span]) -> None:
        self._idle = list(_find_idle_spans(start, max(start, end), active))
        self._start, self._end = start, max(start, end)
        squeezed = sum((span.end - span.start for span in self._idle), timedelta())
        shown = (self._end - start - squeezed).total_seconds()
        self._per_second = (100 - BAND_WIDTH * len(self._idle)) / shown if shown > 0 else 0.0
        self.bands = _label_bands([Band(self.x(span.start), BAND_WIDTH, span.end - span.start) for span in self._idle])
        self.ticks = [Tick(self.x(at), at) for at in self._tick_times()]

    def x(self, at: datetime) -> float:
        at = min(max(at, self._start), self._end)
        seconds, bands = (at - self._start).total_seconds(), 0.0
        for span in self._idle:
            if at <= span.start:
                break
            within = min(at, span.end) - span.start
            seconds -= within.total_seconds()
            bands += BAND_WIDTH * (within / (span.end - span.start))
        return round(min(100.0, seconds * self._per_second + bands), 2)

    def _tick_times(self) -> list[datetime]:
        """Return only both ends if there are bands, since times between them would not be evenly spaced."""
        last = 1 if self._idle else TICK_COUNT - 1
        return [self._start + (self._end - self._start) * number / last for number in range(last + 1)]


def _label_bands(bands: list[Band]) -> list[Band]:
    """Label bands where labels do not overlap; the longest band always has one."""
    if not bands:
        return []
    longest = max(bands, key=lambda band: band.duration)
    labelled: list[Band] = [_add_label(longest, on_phones=True)]
    for band in bands:
        at = _add_label(band).label_x
        if at is not None and all(abs(at - (one.label_x or 0)) >= LABEL_WIDTH for one in labelled):
            labelled.append(_add_label(band))
    found = {band.x: band for band in labelled}
    return [found.get(band.x, band) for band in bands]


def _add_label(band: Band, *, on_phones: bool = False) -> Band:
    middle = band.x + band.width / 2
    if middle > 100 - LABEL_WIDTH / 2:
        return replace(band, label_x=100.0, anchor="end", on_phones=on_phones)
    if middle < LABEL_WIDTH / 2:
        return replace(band, label_x=0.0, anchor="start", on_phones=on_phones)
    return replace(band, label_x=round(middle, 2), on_phones=on_phones)


def _find_idle_spans(start: datetime, end: datetime, active: list[Span]) -> Iterable[Span]:
    reached = start
    for span in sorted(active, key=lambda each: each.start):
        if span.start - reached > MIN_IDLE:
            yield Span(reached, span.start)
        reached = max(reached, span.end)
    if active and end - reached > MIN_IDLE:
        yield Span(reached, end)


def _end_of_step(step: StepProgress) -> datetime | None:
    """Return when the last job ended; None while one is running or there is none."""
    return step.ended_at if step.is_over else None


def _build_parts(
    step: StepProgress,
    dependency_ends: Sequence[datetime | None],
    external_work: Iterable[ExternalWork],
    failed_attempts: Sequence[FailedAttempt],
    end: datetime,
) -> list[Part]:
    created = step.created_at
    if created is None or (step.started_at is None and None in dependency_ends):
        return []
    own = [each for each in failed_attempts if each.step == step.step and not each.item and each.started_at >= created]
    worked = _attempt_parts(own, step, end)
    began = worked[0][1].start if worked else _end_of_step(step) or end
    waited = [("queue", Span(max([created, *(need for need in dependency_ends if need)]), began))]
    own_work = [
        (one.is_child_run, Span(one.parked_at, one.ended_at or end)) for one in external_work if one.step == step.step
    ]
    away = [("external", span) for is_child_run, span in own_work if not is_child_run]
    children = [("child", span) for span in _merge_spans(span for is_child_run, span in own_work if is_child_run)]
    worked = _subtract_from(worked, "run", [span for _, span in own_work])
    return [(kind, span) for kind, span in (*waited, *worked, *away, *children) if span.end >= span.start]


def _add_reviews(parts: list[Part], reviews: Sequence[Review], end: datetime) -> list[Part]:
    """Remove queue and run time during reviews: a reviewed job is not queued.

    All rounds of a review are shown. If a step asks for help with one item, its other items still run.
    """
    shown = [review for review in reviews if review.planned or not review.item]
    review_spans = _merge_spans([_review_span(review, end) for review in shown])
    idle = [_review_span(review, end) for review in shown if review.item]
    left = _subtract_from(_subtract_from(parts, "queue", review_spans), "run", idle)
    return [*left, *(("human", span) for span in review_spans)]


def _subtract_from(parts: Iterable[Part], kind: str, holes: Sequence[Span]) -> list[Part]:
    """Return the parts, those of this kind without the time in the holes."""
    merged = _merge_spans(holes)
    return [
        (each, rest) for each, span in parts for rest in (_subtract_spans(span, merged) if each == kind else [span])
    ]


def _review_span(review: Review, end: datetime) -> Span:
    return Span(review.opened_at, review.decided_at or review.applied_at or end)


def _merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Merge spans that overlap, in order."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda each: each.start):
        if found and span.start <= found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def _subtract_spans(span: Span, holes: Iterable[Span]) -> list[Span]:
    """Return the parts of the span outside the holes, which do not overlap."""
    if not holes:
        return [span]
    left, reached = [], span.start
    for hole in holes:
        if hole.start > reached:
            left.append(Span(reached, min(hole.start, span.end)))
        reached = max(reached, hole.end)
    left.append(Span(reached, span.end))
    return [part for part in left if part.end > part.start]


def _sum_spans(spans: Iterable[Span]) -> timedelta:
    return sum((span.end - span.start for span in spans), timedelta())


def _attempt_parts(failed_attempts: Sequence[FailedAttempt], last: StepProgress | Job, end: datetime) -> list[Part]:
    """Return the attempts in order, with the retry delay and the queue time between them."""
    over = _end_of_step(last) if isinstance(last, StepProgress) else last.ended_at
    is_told = any(each.started_at == last.started_at for each in failed_attempts)
    spans = last.spans if isinstance(last, StepProgress) else [(last.started_at, over)] if last.started_at else []
    current = [] if is_told else [("run", Span(start, last_end or end)) for start, last_end in spans]
    begins = [*(each.started_at for each in failed_attempts[1:]), current[0][1].start if current else over or end]
    parts: list[Part] = []
    for each, following in zip(failed_attempts, begins, strict=False):
        again = min(each.retry_at or each.ended_at, following)
        parts.append(("bad", Span(each.started_at, each.ended_at)))
        parts += [("again", Span(each.ended_at, again))] if again > each.ended_at else []
        parts += [("queue", Span(again, following))] if following > again else []
    return parts + current


def _build_lane(step: StepProgress, parts: list[Part], axis: Axis) -> Lane:
    bars = [_build_bar(kind, span, axis) for kind, span in parts]
    return Lane(step.step, None, bars, _measure(parts))


def _measure(parts: list[Part]) -> timedelta | None:
    """Return how long the step ran or waited for external work, child runs and reviewers.

    Delays between attempts count unless there are reviews. The time before the first attempt does not, nor that
    between two revisions.
    """
    active = [span for kind, span in parts if kind not in ("queue", "again")]
    if not active:
        return None
    start = min(span.start for span in active)
    delays = [span for kind, span in parts if kind in ("queue", "again") and span.start >= start]
    has_reviews = any(kind == "human" for kind, _ in parts)
    return _sum_spans(_merge_spans(active if has_reviews else [*active, *delays]))


def _build_bar(kind: str, span: Span, axis: Axis) -> Bar:
    x = axis.x(span.start)
    width = max(axis.x(span.end) - x, MIN_BAR_WIDTH)
    return Bar(
        kind,
        min(x, 100 - MIN_BAR_WIDTH),
        round(min(width, 100 - x) if x < 100 else MIN_BAR_WIDTH, 2),
        span.end - span.start,
    )
