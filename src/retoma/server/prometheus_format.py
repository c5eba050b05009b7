"""Convert a metrics snapshot to Prometheus metric families."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from retoma.metrics import Metrics, cumulate_buckets
from retoma.records import NoStart, RetentionTotals
from retoma.server.request_rate import RequestRate
from retoma.states import RUN_FINAL_STATES, DeliveryState, RunState

REPORTED_JOB_STATES = ("ready", "delayed", "running", "parked", "waiting")
SCHEDULE_OUTCOMES = ("started", *NoStart)
MICROS_PER_DOLLAR = 1_000_000
OPEN_RUN_STATES = tuple(state for state in RunState if state not in RUN_FINAL_STATES)


def format_snapshot(snapshot: Metrics) -> Iterator[Metric]:
    yield from _run_metrics(snapshot)
    yield from _queue_metrics(snapshot)
    yield from _job_type_metrics(snapshot)
    yield from _pool_metrics(snapshot)
    yield from _review_metrics(snapshot)
    yield from _reviewer_metrics(snapshot)
    yield from _notification_metrics(snapshot)
    yield from _schedule_metrics(snapshot)
    yield from _delivery_metrics(snapshot)
    yield from _budget_metrics(snapshot)
    yield from _upkeep_metrics(snapshot)
    yield GaugeMetricFamily("retoma_workers", "Live workers.", snapshot.workers)
    yield GaugeMetricFamily(
        "retoma_oldest_transaction_seconds",
        "Age of the oldest open transaction in the database.",
        snapshot.oldest_transaction.total_seconds(),
    )


def _budget_metrics(snapshot: Metrics) -> Iterator[Metric]:
    """Return what is used of each budget of a day or a month. A budget per run has no single value."""
    labels = ["tenant", "pipeline", "period"]
    rows = [([each.tenant, each.pipeline, each.period], each) for each in snapshot.budgets]
    yield make_gauge(
        "retoma_budget_spent_ratio",
        "Share of a budget's limit that has been spent in the current period.",
        labels,
        ([*names, each.spent / each.micros] for names, each in rows if each.spent is not None and each.micros),
    )
    yield make_gauge(
        "retoma_budget_spent_dollars",
        "Amount of a budget that has been spent in the current period, in US dollars.",
        labels,
        ([*names, each.spent / MICROS_PER_DOLLAR] for names, each in rows if each.spent is not None),
    )
    yield make_gauge(
        "retoma_budget_waiting_jobs",
        "Jobs that are waiting for a person because they would exceed the budget.",
        labels,
        ([*names, each.waiting] for names, each in rows),
    )


def format_loop_restarts(restarts: Mapping[str, int]) -> Metric:
    return make_counter(
        "retoma_loop_restarts",
        "Restarts of this server's background loops after a failure.",
        ["loop"],
        map(list, sorted(restarts.items())),
    )


def format_requests(requests: RequestRate) -> Iterator[Metric]:
    yield make_counter(
        "retoma_http_requests",
        "Requests that this server received, excluding health checks and reads of the metrics.",
        [],
        [[requests.total]],
    )
    yield make_gauge(
        "retoma_http_requests_per_second",
        "Requests per second that this server received within the last minute.",
        [],
        [[requests.get_rate()]],
    )


def _run_metrics(snapshot: Metrics) -> Iterator[Metric]:
    pipelines = _list_pipelines(snapshot)
    yield make_gauge(
        "retoma_runs",
        "Unfinished runs, by state.",
        ["pipeline", "state"],
        ([one, state, snapshot.open_runs.get((one, state), 0)] for one in pipelines for state in OPEN_RUN_STATES),
    )
    for name, help_text, counts in (
        ("retoma_runs_not_started", "Runs that are due but have not started any job.", snapshot.not_started),
        (
            "retoma_orphaned_effects",
            "Effects of jobs without a result that only a person can resolve.",
            snapshot.orphans,
        ),
        ("retoma_pipeline_workers", "Live workers that serve the pipeline.", snapshot.pipelines),
    ):
        yield make_gauge(name, help_text, ["pipeline"], ([one, counts.get(one, 0)] for one in pipelines))
    yield make_counter(
        "retoma_runs_ended",
        "Finished runs, by final state.",
        ["pipeline", "state"],
        _count_outcomes(snapshot, "run_end", RUN_FINAL_STATES),
    )
    yield _make_histogram(
        "retoma_run_wait_seconds", "Time from when a run was due until its first job started.", snapshot, "run_wait"
    )
    yield _make_histogram(
        "retoma_run_duration_seconds",
        "Time from a run's first job until its end, excluding open reviews.",
        snapshot,
        "run_duration",
    )
    yield _make_histogram(
        "retoma_run_review_seconds",
        "Time that a run spent in open reviews, for runs that had any.",
        snapshot,
        "run_review",
    )


def _queue_metrics(snapshot: Metrics) -> Iterator[Metric]:
    yield make_gauge(
        "retoma_jobs",
        "Unfinished jobs, by state. A ready job that is due later counts as delayed.",
        ["queue", "state"],
        ([queue.queue, state, queue.jobs.get(state, 0)] for queue in snapshot.queues for state in REPORTED_JOB_STATES),
    )
    yield make_gauge(
        "retoma_oldest_ready_seconds",
        "Time that the next job of the queue has been ready, among jobs without a pool.",
        ["queue"],
        ([q.queue, _to_seconds(q.oldest_for)] for q in snapshot.queues),
    )
    yield make_gauge(
        "retoma_queue_workers",
        "Live workers that serve the queue.",
        ["queue"],
        ([queue.queue, queue.workers] for queue in snapshot.queues),
    )
    yield make_gauge(
        "retoma_queue_concurrency",
        "Jobs that the running workers of the queue can run concurrently, shared with their other queues.",
        ["queue"],
        ([queue.queue, queue.concurrency] for queue in snapshot.queues),
    )


def _job_type_metrics(snapshot: Metrics) -> Iterator[Metric]:
    """Yield the metrics of each step. One without recent jobs has a rate of 0 but no times: 0 s would be wrong."""
    labels = ["pipeline", "step"]
    yield make_gauge(
        "jobs_processed_per_minute",
        "Jobs of the step that workers finished per minute, in the last 5 minutes.",
        labels,
        ([each.pipeline, each.step, each.jobs_processed_per_minute] for each in snapshot.job_types),
    )
    yield make_gauge(
        "oldest_queue_time_per_job_type",
        "Seconds that the next job of the step has been ready.",
        labels,
        ([each.pipeline, each.step, _to_seconds(each.oldest_queue_time)] for each in snapshot.job_types),
    )
    for field, meaning in (
        ("queue_time", "Seconds from when a job was ready until its first attempt started"),
        ("processing_time", "Seconds from a job's first attempt until its end, including retries and external work"),
    ):
        for prefix, statistic in (("avg", "mean"), ("p50", "median"), ("p95", "95th percentile")):
            yield make_gauge(
                f"{prefix}_{field}_per_job_type",
                f"{meaning}, in the last 5 minutes: {statistic}.",
                labels,
                (
                    [each.pipeline, each.step, time.total_seconds()]
                    for each in snapshot.job_types
                    if (time := getattr(each, f"{prefix}_{field}")) is not None
                ),
            )


def _pool_metrics(snapshot: Metrics) -> Iterator[Metric]:
    pools = snapshot.pools
    yield make_gauge("retoma_pool_capacity", "Slots in the pool.", ["pool"], ([p.name, p.capacity] for p in pools))
    yield make_gauge("retoma_pool_used", "Slots in use.", ["pool"], ([p.name, p.used] for p in pools))
    yield make_gauge(
        "retoma_pool_waiting", "Ready jobs waiting for slots.", ["pool"], ([p.name, p.waiting] for p in pools)
    )
    yield make_gauge(
        "retoma_pool_paused",
        "1 while the pool is paused at its provider's request.",
        ["pool"],
        ([p.name, p.is_paused] for p in pools),
    )
    yield make_gauge(
        "retoma_pool_newest_holder_seconds",
        "Time since a job last acquired slots, among jobs that still hold them.",
        ["pool"],
        ([p.name, _to_seconds(p.newest_for)] for p in pools),
    )
    yield make_gauge(
        "retoma_pool_oldest_waiting_seconds",
        "Time that the next job of the pool has waited for slots.",
        ["pool"],
        ([p.name, _to_seconds(p.oldest_for)] for p in pools),
    )


def _review_metrics(snapshot: Metrics) -> Iterator[Metric]:
    found, labels = snapshot.reviews, ["pipeline", "step"]
    yield make_gauge("retoma_open_reviews", "Open reviews.", labels, ([r.pipeline, r.step, r.open] for r in found))
    yield make_gauge(
        "retoma_overdue_reviews",
        "Open reviews past their deadline.",
        labels,
        ([r.pipeline, r.step, r.overdue] for r in found),
    )
    yield make_gauge(
        "retoma_oldest_open_review_seconds",
        "Age of the oldest open review.",
        labels,
        ([r.pipeline, r.step, _to_seconds(r.oldest_for)] for r in found),
    )


def _reviewer_metrics(snapshot: Metrics) -> Iterator[Metric]:
    """Yield the decisions of the last 24 hours. A step without any has no times and no shares: 0 would be wrong."""
    found, labels = snapshot.review_steps, ["pipeline", "step"]
    yield make_gauge(
        "retoma_review_decisions",
        "Reviews that people decided in the last 24 hours.",
        labels,
        ([each.pipeline, each.step, each.decided] for each in found),
    )
    for name, statistic, field in (("median", "median", "median_wait"), ("p95", "95th percentile", "p95_wait")):
        yield make_gauge(
            f"retoma_review_wait_{name}_seconds",
            f"Time from when a review opened until its decision, in the last 24 hours: {statistic}.",
            labels,
            ([each.pipeline, each.step, getattr(each, field)] for each in found),
        )
    yield make_gauge(
        "retoma_review_first_pass_ratio",
        "Share of first decisions in the last 24 hours that approved the work at once.",
        labels,
        (
            [each.pipeline, each.step, each.approved_at_once / each.first_decided]
            for each in found
            if each.first_decided
        ),
    )
    people = [each for each in snapshot.reviewers if each.reviewer is not None]
    yield make_gauge(
        "retoma_review_decisions_per_hour",
        "Decisions of a person per hour with a decision, in the last 24 hours.",
        ["reviewer"],
        ([each.reviewer, each.decisions_per_hour] for each in people if each.active_hours),
    )
    yield make_gauge(
        "retoma_review_load",
        "Open reviews that a person has claimed or been assigned.",
        ["reviewer"],
        ([each.reviewer, each.open] for each in people),
    )


def format_retention(totals: RetentionTotals) -> Iterator[Metric]:
    """Return what was removed."""
    yield CounterMetricFamily("retoma_retention_removed_runs", "Ended runs that were removed.", totals.removed_runs)
    yield CounterMetricFamily("retoma_retention_removed_files", "Stored files that were deleted.", totals.removed_files)
    yield CounterMetricFamily(
        "retoma_retention_removed_file_bytes", "The size of the deleted files.", totals.removed_file_bytes
    )


def format_review_targets(wait_seconds: float, first_pass: float) -> Iterator[Metric]:
    yield make_gauge(
        "retoma_review_wait_target_seconds",
        "Target for the time until a decision (RETOMA_REVIEW_TARGET_MINUTES).",
        [],
        [[wait_seconds]],
    )
    yield make_gauge(
        "retoma_review_first_pass_target_ratio",
        "Target for the share of first decisions that approve (RETOMA_REVIEW_FIRST_PASS_TARGET).",
        [],
        [[first_pass]],
    )


def _notification_metrics(snapshot: Metrics) -> Iterator[Metric]:
    found = snapshot.notifications
    yield make_gauge(
        "retoma_pending_notifications", "Notifications that are waiting to be sent.", [], [[found.pending]]
    )
    yield make_gauge("retoma_dead_notifications", "Messages to people that could not be sent.", [], [[found.dead]])
    yield make_gauge(
        "retoma_oldest_due_notification_seconds",
        "Time that the oldest due message to a person has waited to be sent.",
        [],
        [[_to_seconds(found.late_for)]],
    )


def _schedule_metrics(snapshot: Metrics) -> Iterator[Metric]:
    found, pipelines = snapshot.schedules, _list_pipelines(snapshot)
    yield make_counter(
        "retoma_schedule_starts",
        "Due times of schedules, by outcome: `started`, or why no run started.",
        ["pipeline", "outcome"],
        ([one, each, found.outcomes.get((one, each), 0)] for one in pipelines for each in SCHEDULE_OUTCOMES),
    )
    yield make_counter(
        "retoma_schedule_late_seconds",
        "Time by which runs of schedules started late, in total.",
        ["pipeline"],
        ([one, found.late.get(one, timedelta(0)).total_seconds()] for one in pipelines),
    )
    yield make_gauge(
        "retoma_oldest_due_schedule_seconds",
        "Time that the oldest due schedule has waited for a process with its code.",
        [],
        [[found.late_for.total_seconds()]],
    )


def _delivery_metrics(snapshot: Metrics) -> Iterator[Metric]:
    found = snapshot.deliveries
    yield make_gauge(
        "retoma_deliveries",
        "Pending and dead webhook deliveries, by state, excluding dead deliveries to disabled endpoints.",
        ["state"],
        [["due", found.due], ["sending", found.sending], ["dead", found.dead]],
    )
    yield make_gauge(
        "retoma_dead_deliveries", "Dead webhook deliveries, excluding those to disabled endpoints.", [], [[found.dead]]
    )
    yield make_gauge("retoma_disabled_endpoints", "Disabled webhook endpoints.", [], [[found.disabled]])
    yield make_gauge(
        "retoma_oldest_due_delivery_seconds",
        "Time that the oldest due webhook delivery has waited to be sent.",
        [],
        [[_to_seconds(found.late_for)]],
    )
    yield make_counter(
        "retoma_deliveries_ended",
        "Webhook deliveries that succeeded or were given up, by final state.",
        ["pipeline", "state"],
        _count_outcomes(snapshot, "delivery", (DeliveryState.DELIVERED, DeliveryState.DEAD)),
    )


def _upkeep_metrics(snapshot: Metrics) -> Iterator[Metric]:
    found = snapshot.upkeep
    yield make_gauge(
        "retoma_last_backup_age_seconds",
        "Time since `retoma backup` took the last backup. No value if it never did.",
        [],
        [] if found.backup_age is None else [[found.backup_age.total_seconds()]],
    )
    yield make_gauge(
        "retoma_retention_pass_age_seconds",
        "Time since the last pass of retention over all runs ended.",
        [],
        [[found.retention_pass_age.total_seconds()]],
    )
    yield make_gauge(
        "retoma_held_deliveries",
        "Webhooks and notifications that are held since the database was restored.",
        [],
        [[found.held]],
    )


def _list_pipelines(snapshot: Metrics) -> list[str]:
    """Return every pipeline, including those that no running worker serves."""
    return sorted({*snapshot.pipelines, *(counter.pipeline for counter in snapshot.counters)})


def _count_outcomes(snapshot: Metrics, kind: str, outcomes: Iterable[str]) -> Iterator[list[object]]:
    """Yield the count of every outcome of every pipeline."""
    counts = Counter[tuple[str, str]]()
    for counter in snapshot.counters:
        if counter.what == kind:
            counts[counter.pipeline, counter.outcome] += counter.count
    # A series must start at 0: `increase` ignores the first sample and would miss the first failure.
    for pipeline in _list_pipelines(snapshot):
        for outcome in sorted(outcomes):
            yield [pipeline, outcome, counts[pipeline, outcome]]


def _to_seconds(age: timedelta | None) -> float:
    return age.total_seconds() if age else 0


def make_gauge(name: str, help_text: str, labels: list[str], rows: Iterable[list[object]]) -> Metric:
    """Return a gauge. Each row is the label values followed by the metric's value."""
    return _add_rows(GaugeMetricFamily(name, help_text, labels=labels), rows)


def make_counter(name: str, help_text: str, labels: list[str], rows: Iterable[list[object]]) -> Metric:
    """Return a counter with rows as in `make_gauge`. Prometheus sees its name with the suffix `_total`."""
    return _add_rows(CounterMetricFamily(name, help_text, labels=labels), rows)


def _add_rows(family: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[list[object]]) -> Metric:
    for *labels, value in rows:
        family.add_metric([str(label) for label in labels], float(value))  # type: ignore[arg-type]
    return family


def _make_histogram(name: str, help_text: str, snapshot: Metrics, kind: str) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=["pipeline"])
    counters = [counter for counter in snapshot.counters if counter.what == kind]
    # A pipeline without reviews also has a series, of zeros.
    for pipeline in sorted({each.pipeline for each in snapshot.counters if each.what in (kind, "run_duration")}):
        own = [counter for counter in counters if counter.pipeline == pipeline]
        family.add_metric([pipeline], cumulate_buckets(own, BUCKET_BOUNDS), sum(counter.seconds for counter in own))
    return family


# The same bounds as in the SQL function retoma.histogram_bucket.
BUCKET_BOUNDS = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600)
