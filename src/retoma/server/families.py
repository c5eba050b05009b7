"""Figures as families of metrics, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from math import inf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from retoma.figures import Figures, Tally
from retoma.states import RUN_ENDS, DeliveryState, RunState

JOB_STATES = ("ready", "delayed", "running", "parked", "waiting")
OPEN_STATES = tuple(state for state in RunState if state not in RUN_ENDS)


def of_figures(figures: Figures) -> Iterator[Metric]:
    yield from _runs(figures)
    yield from _queues(figures)
    yield from _pools(figures)
    yield from _reviews(figures)
    yield from _deliveries(figures)
    yield GaugeMetricFamily("retoma_workers", "Workers that live.", figures.workers)
    yield gauge(
        "retoma_pipeline_workers",
        "Workers that live and serve this pipeline.",
        ["pipeline"],
        ([one, figures.pipelines.get(one, 0)] for one in _pipelines(figures)),
    )
    yield GaugeMetricFamily(
        "retoma_oldest_transaction_seconds",
        "How long the oldest transaction has been open in the database.",
        figures.oldest_transaction.total_seconds(),
    )


def of_loops(restarts: Mapping[str, int]) -> Metric:
    found = CounterMetricFamily(
        "retoma_loop_restarts_total",
        "How often a background loop of this server has failed and was started again.",
        labels=["loop"],
    )
    for name, count in sorted(restarts.items()):
        found.add_metric([name], count)
    return found


def _runs(figures: Figures) -> Iterator[Metric]:
    pipelines = _pipelines(figures)
    yield gauge(
        "retoma_runs",
        "Runs that are not over, by state.",
        ["pipeline", "state"],
        ([one, state, figures.open_runs.get((one, state), 0)] for one in pipelines for state in OPEN_STATES),
    )
    yield gauge(
        "retoma_runs_not_begun",
        "Runs that are due and of which no work has begun.",
        ["pipeline"],
        ([one, figures.not_begun.get(one, 0)] for one in pipelines),
    )
    yield counter(
        "retoma_runs_ended",
        "Runs that ended, by how.",
        ["pipeline", "state"],
        _counts(figures, "ended", RUN_ENDS),
    )
    yield _histogram("retoma_run_wait_seconds", "From when a run was due until its work began.", figures, "waited")
    yield _histogram(
        "retoma_run_duration_seconds",
        "From when a run's work began until its end, without the time in which people were asked.",
        figures,
        "worked",
    )
    yield _histogram(
        "retoma_run_people_seconds", "For how long people were asked, of runs that asked them.", figures, "asked"
    )


def _queues(figures: Figures) -> Iterator[Metric]:
    yield gauge(
        "retoma_jobs",
        "Jobs that are not final, by state; those that are ready later are delayed.",
        ["queue", "state"],
        ([queue.queue, state, queue.jobs.get(state, 0)] for queue in figures.queues for state in JOB_STATES),
    )
    yield gauge(
        "retoma_oldest_ready_seconds",
        "How long the job that comes next has been ready, of those that need no pool.",
        ["queue"],
        ([q.queue, _seconds(q.oldest_for)] for q in figures.queues),
    )
    yield gauge(
        "retoma_queue_workers",
        "Workers that live and serve this queue.",
        ["queue"],
        ([queue.queue, queue.workers] for queue in figures.queues),
    )
    yield gauge(
        "retoma_queue_room",
        "Jobs that the live workers of this queue can run at once, of all their queues.",
        ["queue"],
        ([queue.queue, queue.room] for queue in figures.queues),
    )


def _pools(figures: Figures) -> Iterator[Metric]:
    pools = figures.pools
    yield gauge("retoma_pool_capacity", "Slots of a pool.", ["pool"], ([p.name, p.capacity] for p in pools))
    yield gauge("retoma_pool_used", "Slots that are held.", ["pool"], ([p.name, p.used] for p in pools))
    yield gauge(
        "retoma_pool_waiting", "Ready jobs that wait for slots.", ["pool"], ([p.name, p.waiting] for p in pools)
    )
    yield gauge(
        "retoma_pool_paused",
        "1 while its provider asked for a pause.",
        ["pool"],
        ([p.name, p.is_paused] for p in pools),
    )
    yield gauge(
        "retoma_pool_newest_holder_seconds",
        "How long ago a job last got slots, of those that still hold them.",
        ["pool"],
        ([p.name, _seconds(p.newest_for)] for p in pools),
    )
    yield gauge(
        "retoma_pool_oldest_waiting_seconds",
        "How long the job that comes next has waited for slots.",
        ["pool"],
        ([p.name, _seconds(p.oldest_for)] for p in pools),
    )


def _reviews(figures: Figures) -> Iterator[Metric]:
    found, labels = figures.reviews, ["pipeline", "step"]
    yield gauge("retoma_open_reviews", "Reviews that are open.", labels, ([r.pipeline, r.step, r.open] for r in found))
    yield gauge(
        "retoma_overdue_reviews",
        "Open reviews that are past their due time.",
        labels,
        ([r.pipeline, r.step, r.overdue] for r in found),
    )
    yield gauge(
        "retoma_oldest_open_review_seconds",
        "How long the review has been open that waits longest.",
        labels,
        ([r.pipeline, r.step, _seconds(r.oldest_for)] for r in found),
    )


def _deliveries(figures: Figures) -> Iterator[Metric]:
    found = figures.deliveries
    yield gauge(
        "retoma_deliveries",
        "Webhooks that are owed, by state.",
        ["state"],
        [["due", found.due], ["sending", found.sending], ["dead", found.dead]],
    )
    yield gauge("retoma_dead_deliveries", "Webhooks that were given up and could be sent again.", [], [[found.dead]])
    yield gauge("retoma_disabled_endpoints", "Endpoints of webhooks that get nothing any more.", [], [[found.disabled]])
    yield gauge(
        "retoma_oldest_due_delivery_seconds",
        "How long the webhook has been due that waits longest for being sent.",
        [],
        [[_seconds(found.late_for)]],
    )
    yield counter(
        "retoma_deliveries_ended",
        "Webhooks that were delivered or given up.",
        ["pipeline", "state"],
        _counts(figures, "delivery", (DeliveryState.DELIVERED, DeliveryState.DEAD)),
    )


def _pipelines(figures: Figures) -> list[str]:
    """Return every pipeline, those that no worker defines any more too."""
    return sorted({*figures.pipelines, *(tally.pipeline for tally in figures.tallies)})


def _counts(figures: Figures, what: str, outcomes: Iterable[str]) -> Iterator[list[object]]:
    """Yield the count of every outcome of every pipeline."""
    counted = Counter[tuple[str, str]]()
    for tally in figures.tallies:
        if tally.what == what:
            counted[tally.pipeline, tally.outcome] += tally.times
    # A series must begin with 0: `increase` does not count the first sample, and would miss the first failure.
    for pipeline in _pipelines(figures):
        for outcome in sorted(outcomes):
            yield [pipeline, outcome, counted[pipeline, outcome]]


def _seconds(age: timedelta | None) -> float:
    return age.total_seconds() if age else 0


def gauge(name: str, help_text: str, labels: list[str], rows: Iterable[list[object]]) -> Metric:
    """Each row is the labels' values and then the figure."""
    return _filled(GaugeMetricFamily(name, help_text, labels=labels), rows)


def counter(name: str, help_text: str, labels: list[str], rows: Iterable[list[object]]) -> Metric:
    """As `gauge`; its name in the text ends in `_total`."""
    return _filled(CounterMetricFamily(name, help_text, labels=labels), rows)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[list[object]]) -> Metric:
    for *labels, figure in rows:
        family.add_metric([str(label) for label in labels], float(figure))  # type: ignore[arg-type]
    return family


def _histogram(name: str, help_text: str, figures: Figures, what: str) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=["pipeline"])
    tallies = [tally for tally in figures.tallies if tally.what == what]
    # A pipeline whose runs asked nobody has a series too, of zeros.
    for pipeline in sorted({tally.pipeline for tally in figures.tallies if tally.what in (what, "worked")}):
        own = [tally for tally in tallies if tally.pipeline == pipeline]
        family.add_metric([pipeline], buckets(own, BOUNDS), sum(tally.seconds for tally in own))
    return family


# As retoma.bucket has them.
BOUNDS = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600)


def buckets(tallies: Iterable[Tally], bounds: Iterable[float]) -> list[tuple[str, float]]:
    """How many took at most so long, for each of the bounds and for all."""
    counted = list(tallies)
    return [
        ("+Inf" if bound == inf else str(float(bound)), sum(tally.times for tally in counted if tally.under <= bound))
        for bound in (*bounds, inf)
    ]
