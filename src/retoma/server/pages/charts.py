"""Charts of queues, utilisation, durations and costs, drawn on the server as SVG, each with its numbers as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf

from starlette.responses import Response

from retoma.metrics import MetricCounter, QueueSample
from retoma.server.pages.formats import NOTHING
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.server.prometheus_format import BUCKET_BOUNDS

WIDTH, HEIGHT = 600, 150
RANGES = (1, 6, 24)  # hours
POINTS = 60  # of a line; a table of more rows would help nobody
DAYS = 30


@dataclass(frozen=True)
class Bar:
    """One column of a chart, with its place and size in the drawing."""

    label: str
    value: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Line:
    """A series: its drawing, in pieces where samples are missing, and the value in each row of the table."""

    name: str
    colour: str
    pieces: list[str]
    values: list[str]


@dataclass(frozen=True)
class Chart:
    """`labels` are the rows of the table, `ends` the first and last label of the axis, and `top` the highest value."""

    id: str
    title: str
    description: str
    labels: list[str]
    top: str
    bars: list[Bar]
    lines: list[Line]
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def is_empty(self) -> bool:
        return not self.bars and not any(line.pieces for line in self.lines)

    @property
    def ends(self) -> tuple[str, str]:
        return self.labels[0], self.labels[-1]


async def show_charts(context: PageContext) -> Response:
    client, query = context.client, context.query
    now = await client.now()
    hours = next((each for each in RANGES if str(each) == query.get("hours")), RANGES[0])
    since = now - timedelta(hours=hours)
    queues = [queue.queue for queue in (await client.metrics.get_snapshot()).queues]
    queue = query.get("queue") if query.get("queue") in queues else None
    samples = await client.metrics.list_queue_samples(since, queue=queue)
    counters = [each for each in await client.metrics.list_counters() if each.what == "run_duration"]
    pipelines = sorted({each.pipeline for each in counters})
    pipeline = query.get("pipeline") if query.get("pipeline") in pipelines else None
    return context.render(
        "charts.html",
        charts=[
            *draw_queues(context, samples, since, timedelta(hours=hours), is_one_queue=queue is not None),
            _draw_durations(context, [each for each in counters if pipeline in (None, each.pipeline)]),
            await _draw_costs(context, now),
        ],
        ranges=RANGES,
        hours=hours,
        queues=queues,
        queue=queue,
        pipelines=pipelines,
        pipeline=pipeline,
    )


def draw_queues(
    context: PageContext,
    samples: Iterable[QueueSample],
    since: datetime,
    span: timedelta,
    *,
    is_one_queue: bool = False,
) -> tuple[Chart, Chart]:
    """Draw the size of a queue, or of all, and the share of workers in use. A point is the most of several minutes."""
    minutes: defaultdict[datetime, list[QueueSample]] = defaultdict(list)
    for sample in samples:
        minutes[sample.at].append(sample)
    ready: list[float | None] = [None] * POINTS
    running, used = ready.copy(), ready.copy()
    for at, found in minutes.items():
        point = min(max(int((at - since) / span * POINTS), 0), POINTS - 1)
        busy = sum(each.running for each in found)
        slots = found[0].slots if is_one_queue else found[0].all_slots
        ready[point] = max(ready[point] or 0, sum(each.ready for each in found))
        running[point] = max(running[point] or 0, busy)
        used[point] = max(used[point] or 0, min(busy / slots, 1.0) if slots else 0.0)
    labels = [context.formats.clock_text(since + span * point / POINTS) for point in range(POINTS)]
    most = max([0.0, *(each for each in (*ready, *running) if each is not None)])
    top = max(most, 1.0)
    number, percent = context.formats.number, context.formats.percent
    return (
        Chart(
            "queue-size",
            context.gettext("Queue size"),
            context.gettext("Jobs that were ready and jobs that were running, over time."),
            labels,
            number(most),
            [],
            [
                draw_line(context.gettext("Ready"), "warn", ready, top, number),
                draw_line(context.gettext("Running"), "run", running, top, number),
            ],
        ),
        Chart(
            "utilisation",
            context.gettext("Utilisation"),
            context.gettext("The share of the workers' capacity that was in use, over time."),
            labels,
            percent(max([0.0, *(each for each in used if each is not None)])),
            [],
            [draw_line(context.gettext("Utilisation"), "run", used, 1, percent)],
        ),
    )


def _draw_durations(context: PageContext, counters: Sequence[MetricCounter]) -> Chart:
    """Draw how many runs took how long, since the database was created."""
    counts: defaultdict[float, int] = defaultdict(int)
    for counter in counters:
        counts[counter.bucket] += counter.count
    labels = [context.gettext("up to %(time)s", time=context.formats.duration(bound)) for bound in BUCKET_BOUNDS]
    labels.append(context.gettext("longer"))
    return Chart(
        "durations",
        context.gettext("Duration of runs"),
        context.gettext("How many runs took how long, without the time in reviews, since the database was created."),
        labels,
        context.formats.number(max([0, *counts.values()])),
        draw_bars(labels, [counts[bound] for bound in (*BUCKET_BOUNDS, inf)], context.formats.number),
        [],
    )


async def _draw_costs(context: PageContext, now: datetime) -> Chart:
    today = now.astimezone(context.time_zone).replace(hour=0, minute=0, second=0, microsecond=0)
    days = [today.date() - timedelta(days=ago) for ago in reversed(range(DAYS))]
    costs = await context.client.costs.get_by_day(today - timedelta(days=DAYS - 1), context.time_zone.key)
    labels = [context.formats.day(day) for day in days]

    def show(micros: float) -> str:
        return f"US$ {context.formats.money(round(micros))}"

    return Chart(
        "costs",
        context.gettext("Cost per day"),
        context.gettext("What providers charged on each of the last %(days)s days.", days=DAYS),
        labels,
        show(max([0, *costs.values()])),
        draw_bars(labels, [costs.get(day, 0) for day in days], show),
        [],
    )


def draw_bars(labels: Sequence[str], values: Sequence[float], show: Callable[[float], str]) -> list[Bar]:
    """Return a column for each value, or none if all are zero."""
    top, step = max(values), WIDTH / len(values)
    if not top:
        return []
    bars = []
    for index, (label, value) in enumerate(zip(labels, values, strict=True)):
        height = value / top * HEIGHT
        x, y, width = round(step * (index + 0.1), 1), round(HEIGHT - height, 1), round(step * 0.8, 1)
        bars.append(Bar(label, show(value), x, y, width, round(height, 1)))
    return bars


def draw_line(name: str, colour: str, values: Sequence[float | None], top: float, show: Callable[[float], str]) -> Line:
    """Return the line through the values. Where they are missing, nothing was running that could count."""
    pieces: list[list[str]] = [[]]
    step = WIDTH / (len(values) - 1)
    around = [None, *values, None]
    for index, value in enumerate(values):
        if value is None:
            pieces.append([])
            continue
        is_alone = around[index] is None and around[index + 2] is None  # a line of one point would not be visible
        places = (max(index - 0.25, 0), min(index + 0.25, len(values) - 1)) if is_alone else (index,)
        pieces[-1] += [f"{place * step:.1f},{HEIGHT - value / top * HEIGHT:.1f}" for place in places]
    drawn = [" ".join(piece) for piece in pieces if piece]
    return Line(name, colour, drawn, [NOTHING if value is None else show(value) for value in values])


PAGES = (Page("/charts", show_charts, scope="metrics:read"),)
