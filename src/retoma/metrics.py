"""The values behind the metrics and the overview page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from math import inf

from retoma.states import RunState


@dataclass(frozen=True)
class QueueMetrics:
    """Open jobs of a queue, by state; delayed jobs are counted separately. `oldest_for` is how long the next job has
    been ready, `concurrency` how many jobs its running workers can run at once, and `concurrency_limit` how many they
    may, if a person has set a limit. While it is paused, `paused_at` is set and no job of it starts."""

    queue: str
    jobs: dict[str, int]
    oldest_for: timedelta | None
    workers: int
    concurrency: int
    concurrency_limit: int | None = None
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None


@dataclass(frozen=True)
class QueueTimes:
    """The jobs of a queue that workers ended recently, and how long they waited and took, as in `JobTypeMetrics`."""

    jobs_processed_per_minute: float
    p50_queue_time: timedelta | None
    p95_queue_time: timedelta | None
    p50_processing_time: timedelta | None
    p95_processing_time: timedelta | None


@dataclass(frozen=True)
class QueueSample:
    """The jobs of a queue at the start of a minute, and how many its workers could run at once (`slots`).

    A worker counts in each queue that it serves. `all_slots` is the number for the workers of all queues together.
    """

    at: datetime
    queue: str
    ready: int
    delayed: int
    running: int
    slots: int
    all_slots: int


@dataclass(frozen=True)
class PoolMetrics:
    """`newest_for` is the time since the newest slot holder got its slots; `oldest_for` is how long the next job has
    waited for slots."""

    name: str
    capacity: int
    used: int
    waiting: int
    is_paused: bool
    newest_for: timedelta | None
    oldest_for: timedelta | None


@dataclass(frozen=True)
class JobTypeMetrics:
    """The jobs of a step that workers ended within `window`, and how long they waited and took.

    A job waits from when it is ready until its first attempt starts, and is processed from then to its end, including
    retries and external work. The times are None if no job ended. `oldest_queue_time` is how long the next job has been
    ready, and `busy_time` how long attempts occupied a worker, including those that failed.
    """

    pipeline: str
    step: str
    queue: str
    window: timedelta
    jobs_processed: int
    jobs_processed_per_minute: float
    avg_queue_time: timedelta | None
    p50_queue_time: timedelta | None
    p95_queue_time: timedelta | None
    oldest_queue_time: timedelta | None
    avg_processing_time: timedelta | None
    p50_processing_time: timedelta | None
    p95_processing_time: timedelta | None
    busy_time: timedelta


@dataclass(frozen=True)
class DeliveryMetrics:
    """`dead` counts dead letters that can be redelivered, `disabled` counts disabled endpoints, and `late_for` is how
    long the oldest due delivery has waited for a sender."""

    due: int
    sending: int
    dead: int
    disabled: int
    late_for: timedelta | None


@dataclass(frozen=True)
class NotificationMetrics:
    """`pending` counts events that wait for their time, `dead` messages that were given up, and `late_for` is how long
    the oldest due message has waited for a sender."""

    pending: int
    dead: int
    late_for: timedelta | None


@dataclass(frozen=True)
class ScheduleMetrics:
    """`outcomes` counts due times by pipeline and by what became of them, and `late` is how late their runs started in
    total. `late_for` is how long the schedule that is due the longest has waited."""

    outcomes: dict[tuple[str, str], int]
    late: dict[str, timedelta]
    late_for: timedelta


@dataclass(frozen=True)
class BudgetMetrics:
    """What is spent of a budget in its current period, in micros, and how many jobs wait because of it.

    `spent` is None for a budget per run, and `pipeline` empty for one of all pipelines.
    """

    tenant: str
    pipeline: str
    period: str
    micros: int
    spent: int | None
    waiting: int


@dataclass(frozen=True)
class OpenReviewMetrics:
    """Open reviews of a step: their number, how many are overdue, and the age of the oldest."""

    pipeline: str
    step: str
    open: int
    overdue: int
    oldest_for: timedelta


@dataclass(frozen=True)
class ReviewerMetrics:
    """The decisions of one person, or of all if `reviewer` is None. Waits are in seconds, from opening to decision.

    `in_time` counts decisions before the review's deadline, or within the target if it has none. `first_decided` counts
    the first decision on the work of a step in a run, and `approved_at_once` those of them that approved it.
    `active_hours` counts the hours of the clock with a decision. `open` counts the open reviews that the person has
    claimed or been assigned.
    """

    reviewer: str | None
    decided: int
    mean_wait: float | None
    median_wait: float | None
    in_time: int
    first_decided: int
    approved_at_once: int
    active_hours: int
    open: int

    @property
    def in_time_share(self) -> float | None:
        return self.in_time / self.decided if self.decided else None

    @property
    def first_pass_share(self) -> float | None:
        return self.approved_at_once / self.first_decided if self.first_decided else None

    @property
    def decisions_per_hour(self) -> float | None:
        """Decisions per hour in which the person decided anything."""
        return self.decided / self.active_hours if self.active_hours else None


@dataclass(frozen=True)
class ReviewDay:
    """The decisions of one day, as in `ReviewerMetrics`."""

    day: date
    decided: int
    median_wait: float
    first_decided: int
    approved_at_once: int


@dataclass(frozen=True)
class ReviewStepMetrics:
    """The decisions at a step in the last 24 hours. Waits are in seconds."""

    pipeline: str
    step: str
    decided: int
    median_wait: float
    p95_wait: float
    first_decided: int
    approved_at_once: int


@dataclass(frozen=True)
class MetricCounter:
    """How often something happened in a pipeline since the database was created.

    `what` is `run_end`, with the final state as the outcome; `run_wait`, until the work of a run started;
    `run_duration`, from then to its end without reviews; `run_review`, its time in open reviews; or `delivery`, with
    delivered or dead as the outcome. Counts those that took at most `bucket` seconds, and more than the next smaller
    bucket.
    """

    pipeline: str
    what: str
    outcome: str
    bucket: float
    count: int
    seconds: float


def cumulate_buckets(counters: Iterable[MetricCounter], bounds: Iterable[float]) -> list[tuple[str, float]]:
    """Return the buckets of a Prometheus histogram: the number of values up to each bound, and of all values."""
    rows = list(counters)
    return [
        ("+Inf" if bound == inf else str(float(bound)), sum(each.count for each in rows if each.bucket <= bound))
        for bound in (*bounds, inf)
    ]


@dataclass(frozen=True)
class UpkeepMetrics:
    """`backup_age` is None if no backup was taken with `retoma backup`. `retention_pass_age` is the time since a pass
    over all runs ended or, until the first one has, since retention was installed. `held` counts the webhooks and
    notifications that a restore holds back."""

    backup_age: timedelta | None
    retention_pass_age: timedelta
    held: int


@dataclass(frozen=True)
class MetricsSnapshot:
    """The metrics that the pages show. Jobs are counted in the oldest open runs only; `oldest_runs` counts those runs
    by pipeline and state."""

    queues: list[QueueMetrics]
    pools: list[PoolMetrics]
    open_runs: int
    oldest_runs: dict[tuple[str, RunState], int]
    stuck: int
    deliveries: DeliveryMetrics
    workers: int


@dataclass(frozen=True)
class Metrics:
    """All metrics. Open runs are by pipeline and state; `not_started` counts runs that are due and wait.
    `orphans` counts effects that only a person can resolve, by pipeline.
    `job_types` has the jobs of the last five minutes; `review_steps` and `reviewers` have the decisions of the last 24
    hours.
    `pipelines` has every pipeline that was ever defined, with the number of running workers that serve it.
    `oldest_transaction` is the age of the oldest open transaction in this database."""

    queues: list[QueueMetrics]
    pools: list[PoolMetrics]
    open_runs: dict[tuple[str, RunState], int]
    not_started: dict[str, int]
    orphans: dict[str, int]
    job_types: list[JobTypeMetrics]
    reviews: list[OpenReviewMetrics]
    review_steps: list[ReviewStepMetrics]
    reviewers: list[ReviewerMetrics]
    deliveries: DeliveryMetrics
    notifications: NotificationMetrics
    schedules: ScheduleMetrics
    upkeep: UpkeepMetrics
    budgets: list[BudgetMetrics]
    counters: list[MetricCounter]
    workers: int
    pipelines: dict[str, int]
    oldest_transaction: timedelta
