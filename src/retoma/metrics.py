"""How everything stands: what metrics and the overview show."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from retoma.states import RunState


@dataclass(frozen=True)
class QueueMetrics:
    """Jobs of a queue that are not final, by state, those that are delayed apart. `oldest_for` is how long the job that
    comes next has been ready; `room` is what its live workers can run at once."""

    queue: str
    jobs: dict[str, int]
    oldest_for: timedelta | None
    workers: int
    concurrency: int


@dataclass(frozen=True)
class PoolMetrics:
    """`newest_for` is how long ago a job last got slots, of those that still hold them; `oldest_for` how long the job
    that comes next has waited for some."""

    name: str
    capacity: int
    used: int
    waiting: int
    is_paused: bool
    newest_for: timedelta | None
    oldest_for: timedelta | None


@dataclass(frozen=True)
class DeliveryMetrics:
    """`dead` are those that could be sent again, `disabled` counts endpoints that get nothing any more, and `late_for`
    is for how long the sending of one has been due that nobody sends."""

    due: int
    sending: int
    dead: int
    disabled: int
    late_for: timedelta | None


@dataclass(frozen=True)
class OpenReviewMetrics:
    """What waits for people at a step: how many, how many of them past their time, and how long the oldest."""

    pipeline: str
    step: str
    open: int
    overdue: int
    oldest_for: timedelta


@dataclass(frozen=True)
class MetricCounter:
    """How often something happened in a pipeline since the database was made. What: a run `ended`, its state being the
    outcome; it `waited` until work began; it `worked` until its end; or a `delivery` ended, as delivered or dead.
    It counts those that took up to `under` seconds and more than the tally before it."""

    pipeline: str
    what: str
    outcome: str
    bucket: float
    count: int
    seconds: float


@dataclass(frozen=True)
class MetricsSnapshot:
    """How everything stands, for people who look. What runs is counted in the oldest open runs only."""

    queues: list[QueueMetrics]
    pools: list[PoolMetrics]
    open_runs: int
    stuck: int
    deliveries: DeliveryMetrics
    workers: int


@dataclass(frozen=True)
class Metrics:
    """What metrics show. Open runs are by pipeline and state; `not_begun` are those that are due and wait.
    `pipelines` has every pipeline that was ever defined, with the live workers that serve it.
    `oldest_transaction` is for how long anybody's has been open in this database."""

    queues: list[QueueMetrics]
    pools: list[PoolMetrics]
    open_runs: dict[tuple[str, RunState], int]
    not_started: dict[str, int]
    reviews: list[OpenReviewMetrics]
    deliveries: DeliveryMetrics
    counters: list[MetricCounter]
    workers: int
    pipelines: dict[str, int]
    oldest_transaction: timedelta
