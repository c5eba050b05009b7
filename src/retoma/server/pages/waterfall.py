"""When each step waited, worked, had its work done outside, and waited for a person, on one axis. Pure.

Where nothing went on for long, the axis is squeezed: the band has one width, whatever its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from retoma.records import Job, Outside, Review, StepProgress, Try
from retoma.states import JOB_ENDS

IDLE = timedelta(minutes=10)
BAND = 5.0  # percent of the axis
LABEL = 12.0  # percent of the axis that a label takes
THINNEST = 0.4
TICKS = 5


@dataclass(frozen=True)
class Span:
    first: datetime
    last: datetime


Part = tuple[str, Span]
IDLE_KINDS = ("queue", "again", "human")
TOTALS = {
    "queue": ("queue",),
    "run": ("run", "bad"),
    "again": ("again",),
    "outside": ("outside",),
    "human": ("human",),
}


@dataclass(frozen=True)
class Bar:
    """Percent of the axis. `kind` is queue, run, bad (an attempt that failed), again (a wait for the next), outside,
    human (a wait for a person)."""

    kind: str
    x: float
    width: float
    lasted: timedelta


@dataclass(frozen=True)
class Lane:
    """Of a step, or of one `item` of it."""

    step: str
    item: str | None
    bars: list[Bar]
    lasted: timedelta | None


@dataclass(frozen=True)
class Band:
    """`label_x` is where the label stands, by its `anchor`: within the axis, also of a band at its end. None: it has
    none, for want of room; `on_phones` says whether it has one on a narrow screen too."""

    x: float
    width: float
    lasted: timedelta
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
    people: timedelta
    """For how long people were asked. Reviews that were open at once count once."""


def drawn(
    steps: Sequence[StepProgress],
    needs: Mapping[str, Sequence[str]],
    outside: Sequence[Outside],
    begins: datetime,
    ends: datetime,
    tries: Sequence[Try] = (),
    job: Job | None = None,
    reviews: Sequence[Review] = (),
) -> Waterfall:
    """`ends` is the run's end, or now. A step is in the queue from when its needs are over.

    `tries` are shown one by one, of steps that have one job; `job` is of an item that gets a lane of its own.
    """
    over = {step.step: _over(step) for step in steps}
    parts = {
        step.step: _with_people(
            _parts(step, [over.get(need) for need in needs.get(step.step, ())], outside, tries, ends),
            [review for review in reviews if review.step == step.step],
            ends,
        )
        for step in steps
    }
    axis = Axis(begins, ends, [span for spans in parts.values() for kind, span in spans if kind not in IDLE_KINDS])
    lanes = [_lane(step, parts[step.step], axis) for step in steps]
    totals = {
        kind: sum((bar.lasted for lane in lanes for bar in lane.bars if bar.kind in kinds), timedelta())
        for kind, kinds in TOTALS.items()
    }
    people = _joined([_asked(review, ends) for review in reviews])
    return Waterfall(_with_item(lanes, job, tries, axis, ends), axis.bands, axis.ticks, totals, people=_length(people))


def _with_item(lanes: list[Lane], job: Job | None, tries: Sequence[Try], axis: Axis, ends: datetime) -> list[Lane]:
    """The lane of one item stands below that of its step."""
    if job is None:
        return lanes
    worked = _worked([each for each in tries if (each.step, each.item) == (job.step, job.item)], job, ends)
    bars = [_bar(kind, span, axis) for kind, span in worked]
    lasted = job.ended_at - job.started_at if job.ended_at and job.started_at else None
    place = next((number for number, lane in enumerate(lanes) if lane.step == job.step), len(lanes)) + 1
    return [*lanes[:place], Lane(job.step, job.item, bars, lasted), *lanes[place:]]


class Axis:
    """Maps times to percent, with what is idle for long squeezed into bands."""

    def __init__(self, begins: datetime, ends: datetime, active: list[Span]) -> None:
        self._idle = list(_idle(begins, max(begins, ends), active))
        self._begins, self._ends = begins, max(begins, ends)
        squeezed = sum((span.last - span.first for span in self._idle), timedelta())
        shown = (self._ends - begins - squeezed).total_seconds()
        self._per_second = (100 - BAND * len(self._idle)) / shown if shown > 0 else 0.0
        self.bands = _labelled([Band(self.x(span.first), BAND, span.last - span.first) for span in self._idle])
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
        """Only both ends where bands lie between them: times would not be evenly spaced."""
        last = 1 if self._idle else TICKS - 1
        return [self._begins + (self._ends - self._begins) * number / last for number in range(last + 1)]


def _labelled(bands: list[Band]) -> list[Band]:
    """With labels where they do not touch each other; the longest band has one in any case."""
    if not bands:
        return []
    longest = max(bands, key=lambda band: band.lasted)
    labelled: list[Band] = [_with_label(longest, on_phones=True)]
    for band in bands:
        at = _with_label(band).label_x
        if at is not None and all(abs(at - (one.label_x or 0)) >= LABEL for one in labelled):
            labelled.append(_with_label(band))
    found = {band.x: band for band in labelled}
    return [found.get(band.x, band) for band in bands]


def _with_label(band: Band, *, on_phones: bool = False) -> Band:
    middle = band.x + band.width / 2
    if middle > 100 - LABEL / 2:
        return replace(band, label_x=100.0, anchor="end", on_phones=on_phones)
    if middle < LABEL / 2:
        return replace(band, label_x=0.0, anchor="start", on_phones=on_phones)
    return replace(band, label_x=round(middle, 2), on_phones=on_phones)


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
    step: StepProgress,
    needs: Sequence[datetime | None],
    outside: Iterable[Outside],
    tries: Sequence[Try],
    ends: datetime,
) -> list[Part]:
    created = step.created_at
    if created is None or (step.started_at is None and None in needs):
        return []
    own = [each for each in tries if each.step == step.step and not each.item and each.began_at >= created]
    worked = _worked(own, step, ends)
    began = worked[0][1].first if worked else _over(step) or ends
    waited = [("queue", Span(max([created, *(need for need in needs if need)]), began))]
    away = [("outside", Span(one.parked_at, one.ended_at or ends)) for one in outside if one.step == step.step]
    return [(kind, span) for kind, span in (*waited, *worked, *away) if span.last >= span.first]


def _with_people(parts: list[Part], reviews: Sequence[Review], ends: datetime) -> list[Part]:
    """While a person is asked, a job is in no queue, and a step whose items are reviewed does no work.

    All rounds of a review are shown. Of a step that asks for help with an item, others are worked on meanwhile.
    """
    shown = [review for review in reviews if review.planned or not review.item]
    asked = _joined([_asked(review, ends) for review in shown])
    idle = _joined([_asked(review, ends) for review in shown if review.item])
    left: list[Part] = []
    for kind, span in parts:
        match kind:
            case "queue":
                left += [(kind, part) for part in _without(span, asked)]
            case "run":
                left += [(kind, part) for part in _without(span, idle)]
            case _:
                left.append((kind, span))
    return [*left, *(("human", span) for span in asked)]


def _asked(review: Review, ends: datetime) -> Span:
    return Span(review.opened_at, review.decided_at or review.applied_at or ends)


def _joined(spans: Iterable[Span]) -> list[Span]:
    """The same time as spans that do not overlap, in their order."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda each: each.first):
        if found and span.first <= found[-1].last:
            found[-1] = Span(found[-1].first, max(found[-1].last, span.last))
        else:
            found.append(span)
    return found


def _without(span: Span, holes: Iterable[Span]) -> list[Span]:
    """What is left of it outside of these, which do not overlap."""
    if not holes:
        return [span]
    left, reached = [], span.first
    for hole in holes:
        if hole.first > reached:
            left.append(Span(reached, min(hole.first, span.last)))
        reached = max(reached, hole.last)
    left.append(Span(reached, span.last))
    return [part for part in left if part.last > part.first]


def _length(spans: Iterable[Span]) -> timedelta:
    return sum((span.last - span.first for span in spans), timedelta())


def _worked(tries: Sequence[Try], last: StepProgress | Job, ends: datetime) -> list[Part]:
    """Attempts in their order, and between them the wait for the next, first because it was put off."""
    over = _over(last) if isinstance(last, StepProgress) else last.ended_at
    is_told = any(each.began_at == last.started_at for each in tries)
    current = [] if last.started_at is None or is_told else [("run", Span(last.started_at, over or ends))]
    begins = [*(each.began_at for each in tries[1:]), current[0][1].first if current else over or ends]
    parts: list[Part] = []
    for each, following in zip(tries, begins, strict=False):
        again = min(each.again_at or each.ended_at, following)
        parts.append(("bad", Span(each.began_at, each.ended_at)))
        parts += [("again", Span(each.ended_at, again))] if again > each.ended_at else []
        parts += [("queue", Span(again, following))] if following > again else []
    return parts + current


def _lane(step: StepProgress, parts: list[Part], axis: Axis) -> Lane:
    bars = [_bar(kind, span, axis) for kind, span in parts]
    return Lane(step.step, None, bars, _lasted(parts))


def _lasted(parts: list[Part]) -> timedelta | None:
    """From the first attempt to the end of the last; of a step that asked people, their time and that of its work."""
    runs = [span for kind, span in parts if kind in ("run", "bad")]
    asked = [span for kind, span in parts if kind == "human"]
    if asked:
        return _length([*asked, *runs])
    return runs[-1].last - runs[0].first if runs else None


def _bar(kind: str, span: Span, axis: Axis) -> Bar:
    x = axis.x(span.first)
    width = max(axis.x(span.last) - x, THINNEST)
    return Bar(
        kind, min(x, 100 - THINNEST), round(min(width, 100 - x) if x < 100 else THINNEST, 2), span.last - span.first
    )
