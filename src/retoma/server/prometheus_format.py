"""Figures as families of metrics, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from math import inf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from retoma.metrics import MetricCounter, Metrics
from retoma.states import RUN_FINAL_STATES, DeliveryState, RunState

REPORTED_JOB_STATES = ("ready", "delayed", "running", "parked", "waiting")
OPEN_RUN_STATES = tuple(state for state in RunState if state not in RUN_FINAL_STATES)


def format_snapshot(snapshot: Metrics) -> Iterator[Metric]:
    yield from _run_metrics(snapshot)
    yield from _queue_metrics(snapshot)
    yield from _pool_metrics(snapshot)
    yield from _review_metrics(snapshot)
    yield from _delivery_metrics(snapshot)
    yield GaugeMetricFamily("retoma_workers", "Workers that live.", snapshot.workers)
    yield make_gauge(
        "retoma_pipeline_workers",
        "Workers that live and serve this pipeline.",
        ["pipeline"],
        ([one, snapshot.pipelines.get(one, 0)] for one in _list_pipelines(snapshot)),
    )
    yield GaugeMetricFamily(
        "retoma_oldest_transaction_seconds",
        "How long the oldest transaction has been open in the database.",
        snapshot.oldest_transaction.total_seconds(),
    )


def format_loop_restarts(restarts: Mapping[str, int]) -> Metric:
    found = CounterMetricFamily(
        "retoma_loop_restarts_total",
        "How often a background loop of this server has failed and was started again.",
        labels=["loop"],
    )
    for name, count in sorted(restarts.items()):
        found.add_metric([name], count)
    return found


def _run_metrics(snapshot: Metrics) -> Iterator[Metric]:
    pipelines = _list_pipelines(snapshot)
    yield make_gauge(
        "retoma_runs",
        "Runs that are not over, by state.",
        ["pipeline", "state"],
        ([one, state, snapshot.open_runs.get((one, state), 0)] for one in pipelines for state in OPEN_RUN_STATES),
    )
    yield make_gauge(
        "retoma_runs_not_started",
        "Runs that are due and of which no work has begun.",
        ["pipeline"],
        ([one, snapshot.not_started.get(one, 0)] for one in pipelines),
    )
    yield make_counter(
        "retoma_runs_ended",
        "Runs that ended, by how.",
        ["pipeline", "state"],
        _count_outcomes(snapshot, "ended", RUN_FINAL_STATES),
    )
    yield _make_histogram(
        "retoma_run_wait_seconds", "From when a run was due until its work began.", snapshot, "waited"
    )
    yield _make_histogram(
        "retoma_run_duration_seconds",
        "From when a run's work began until its end, without the time in which people were asked.",
        snapshot,
        "worked",
    )
    yield _make_histogram(
        "retoma_run_review_seconds", "For how long people were asked, of runs that asked them.", snapshot, "asked"
    )


def _queue_metrics(snapshot: Metrics) -> Iterator[Metric]:
    yield make_gauge(
        "retoma_jobs",
        "Jobs that are not final, by state; those that are ready later are delayed.",
        ["queue", "state"],
        ([queue.queue, state, queue.jobs.get(state, 0)] for queue in snapshot.queues for state in REPORTED_JOB_STATES),
    )
    yield make_gauge(
        "retoma_oldest_ready_seconds",
        "How long the job that comes next has been ready, of those that need no pool.",
        ["queue"],
        ([q.queue, _to_seconds(q.oldest_for)] for q in snapshot.queues),
    )
    yield make_gauge(
        "retoma_queue_workers",
        "Workers that live and serve this queue.",
        ["queue"],
        ([queue.queue, queue.workers] for queue in snapshot.queues),
    )
    yield make_gauge(
        "retoma_queue_concurrency",
        "Jobs that the live workers of this queue can run at once, of all their queues.",
        ["queue"],
        ([queue.queue, queue.concurrency] for queue in snapshot.queues),
    )


def _pool_metrics(snapshot: Metrics) -> Iterator[Metric]:
    pools = snapshot.pools
    yield make_gauge("retoma_pool_capacity", "Slots of a pool.", ["pool"], ([p.name, p.capacity] for p in pools))
    yield make_gauge("retoma_pool_used", "Slots that are held.", ["pool"], ([p.name, p.used] for p in pools))
    yield make_gauge(
        "retoma_pool_waiting", "Ready jobs that wait for slots.", ["pool"], ([p.name, p.waiting] for p in pools)
    )
    yield make_gauge(
        "retoma_pool_paused",
        "1 while its provider asked for a pause.",
        ["pool"],
        ([p.name, p.is_paused] for p in pools),
    )
    yield make_gauge(
        "retoma_pool_newest_holder_seconds",
        "How long ago a job last got slots, of those that still hold them.",
        ["pool"],
        ([p.name, _to_seconds(p.newest_for)] for p in pools),
    )
    yield make_gauge(
        "retoma_pool_oldest_waiting_seconds",
        "How long the job that comes next has waited for slots.",
        ["pool"],
        ([p.name, _to_seconds(p.oldest_for)] for p in pools),
    )


def _review_metrics(snapshot: Metrics) -> Iterator[Metric]:
    found, labels = snapshot.reviews, ["pipeline", "step"]
    yield make_gauge(
        "retoma_open_reviews", "Reviews that are open.", labels, ([r.pipeline, r.step, r.open] for r in found)
    )
    yield make_gauge(
        "retoma_overdue_reviews",
        "Open reviews that are past their due time.",
        labels,
        ([r.pipeline, r.step, r.overdue] for r in found),
    )
    yield make_gauge(
        "retoma_oldest_open_review_seconds",
        "How long the review has been open that waits longest.",
        labels,
        ([r.pipeline, r.step, _to_seconds(r.oldest_for)] for r in found),
    )


def _delivery_metrics(snapshot: Metrics) -> Iterator[Metric]:
    found = snapshot.deliveries
    yield make_gauge(
        "retoma_deliveries",
        "Webhooks that are owed, by state.",
        ["state"],
        [["due", found.due], ["sending", found.sending], ["dead", found.dead]],
    )
    yield make_gauge(
        "retoma_dead_deliveries", "Webhooks that were given up and could be sent again.", [], [[found.dead]]
    )
    yield make_gauge(
        "retoma_disabled_endpoints", "Endpoints of webhooks that get nothing any more.", [], [[found.disabled]]
    )
    yield make_gauge(
        "retoma_oldest_due_delivery_seconds",
        "How long the webhook has been due that waits longest for being sent.",
        [],
        [[_to_seconds(found.late_for)]],
    )
    yield make_counter(
        "retoma_deliveries_ended",
        "Webhooks that were delivered or given up.",
        ["pipeline", "state"],
        _count_outcomes(snapshot, "delivery", (DeliveryState.DELIVERED, DeliveryState.DEAD)),
    )


def _list_pipelines(snapshot: Metrics) -> list[str]:
    """Return every pipeline, those that no worker defines any more too."""
    return sorted({*snapshot.pipelines, *(tally.pipeline for tally in snapshot.counters)})


def _count_outcomes(snapshot: Metrics, kind: str, outcomes: Iterable[str]) -> Iterator[list[object]]:
    """Yield the count of every outcome of every pipeline."""
    counted = Counter[tuple[str, str]]()
    for tally in snapshot.counters:
        if tally.what == kind:
            counted[tally.pipeline, tally.outcome] += tally.count
    # A series must begin with 0: `increase` does not count the first sample, and would miss the first failure.
    for pipeline in _list_pipelines(snapshot):
        for outcome in sorted(outcomes):
            yield [pipeline, outcome, counted[pipeline, outcome]]


def _to_seconds(age: timedelta | None) -> float:
    return age.total_seconds() if age else 0


def make_gauge(name: str, help_text: str, labels: list[str], rows: Iterable[list[object]]) -> Metric:
    """Each row is the labels' values and then the figure."""
    return _add_rows(GaugeMetricFamily(name, help_text, labels=labels), rows)


def make_counter(name: str, help_text: str, labels: list[str], rows: Iterable[list[object]]) -> Metric:
    """As `gauge`; its name in the text ends in `_total`."""
    return _add_rows(CounterMetricFamily(name, help_text, labels=labels), rows)


def _add_rows(family: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[list[object]]) -> Metric:
    for *labels, figure in rows:
        family.add_metric([str(label) for label in labels], float(figure))  # type: ignore[arg-type]
    return family


def _make_histogram(name: str, help_text: str, snapshot: Metrics, kind: str) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=["pipeline"])
    tallies = [tally for tally in snapshot.counters if tally.what == kind]
    # A pipeline whose runs asked nobody has a series too, of zeros.
    for pipeline in sorted({tally.pipeline for tally in snapshot.counters if tally.what in (kind, "worked")}):
        own = [tally for tally in tallies if tally.pipeline == pipeline]
        family.add_metric([pipeline], cumulate_buckets(own, BUCKET_BOUNDS), sum(tally.seconds for tally in own))
    return family


# As retoma.histogram_bucket has them.
BUCKET_BOUNDS = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600)


def cumulate_buckets(counters: Iterable[MetricCounter], bounds: Iterable[float]) -> list[tuple[str, float]]:
    """How many took at most so long, for each of the bounds and for all."""
    counted = list(counters)
    return [
        ("+Inf" if bound == inf else str(float(bound)), sum(tally.count for tally in counted if tally.bucket <= bound))
        for bound in (*bounds, inf)
    ]
