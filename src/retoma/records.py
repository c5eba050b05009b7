"""The records that the client returns: runs, jobs, reviews, events, workers and more, as the database had them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from retoma.errors import RetomaError
from retoma.states import DeliveryState, JobState, ReviewState, RunState

MAX_ABOUT_LENGTH = 120
GENERIC_CODE = "ERROR"  # of an error without a specific code
ABOUT_FIELDS = ("topic", "title", "name", "subject")
"""Input fields that can describe the subject of a run."""


@dataclass(frozen=True)
class Run:
    id: UUID
    title: str | None
    tenant: str
    pipeline: str
    version: int
    state: RunState
    revision: int
    input: Any
    created_at: datetime
    run_at: datetime
    ended_at: datetime | None
    forked_from: UUID | None = None

    @property
    def is_over(self) -> bool:
        return self.state.is_over

    @property
    def about(self) -> str:
        """Return the title, or else a short description from the input: a field of ABOUT_FIELDS, or its first text."""
        if self.title:
            return self.title
        fields = self.input if isinstance(self.input, dict) else {}
        texts = [*(fields.get(name) for name in ABOUT_FIELDS), *fields.values()]
        return next((each.strip()[:MAX_ABOUT_LENGTH] for each in texts if isinstance(each, str) and each.strip()), "")


@dataclass(frozen=True)
class Job:
    """The current job of a step, or of one item of it. `code` says why it has no result, or why it waits."""

    step: str
    item: str
    revision: int
    state: JobState
    attempt: int
    worker_deaths: int
    queue: str
    code: str | None
    position: int
    waiting_on: int
    created_at: datetime
    ready_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    output: Any


@dataclass(frozen=True)
class Review:
    """A question to a person about a job, and their decision.

    A planned review is a step of its pipeline. Otherwise a step asked for help, and `reason` says why. A decision takes
    effect at `effective_at`; until then it can be undone. `value` is the approved value, if it differs from the
    subject. `times_sent_back` counts how often the work was sent back in this run; `max_revisions` is the limit.
    """

    id: UUID
    run: UUID
    run_title: str | None
    tenant: str
    pipeline: str
    step: str
    item: str
    revision: int
    planned: bool
    state: ReviewState
    reason: Any
    opened_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    assignee: str | None
    claimed_by: str | None
    decided_by: str | None
    via: str | None
    decided_at: datetime | None
    effective_at: datetime | None
    applied_at: datetime | None
    value: Any
    notes: str | None
    feedback: Any
    back_to: str | None
    back_items: tuple[str, ...]
    can_send_back_to: tuple[str, ...]
    times_sent_back: int
    max_revisions: int | None
    has_form: bool = False  # to approve it, a person fills in a form

    @property
    def is_open(self) -> bool:
        return self.state is ReviewState.OPEN

    @property
    def can_be_undone(self) -> bool:
        return self.decided_by is not None and self.applied_at is None


@dataclass(frozen=True)
class Subject:
    """A result under review."""

    step: str
    revision: int
    value: Any


@dataclass(frozen=True)
class ReviewCount:
    pipeline: str
    step: str
    open: int
    overdue: int
    oldest_at: datetime


@dataclass(frozen=True)
class ReviewMetrics:
    """`first_decided` counts the first decision of each review in a run; `mean_wait` is in seconds."""

    decided: int
    first_decided: int
    approved_at_once: int
    mean_wait: float | None


@dataclass(frozen=True)
class PipelineMetrics:
    """Metrics of ended runs. `failed` excludes rejected and cancelled runs.

    `steps` counts steps with at least one attempt that have ended, in open runs too; `retried` of them needed more
    than one attempt. The durations cover the `timed` runs and exclude time spent waiting for people. Timed runs are
    completed runs, and open runs in which only steps that are excluded from the duration are left.
    """

    ended: int
    failed: int
    steps: int
    retried: int
    timed: int
    mean_seconds: float | None
    median_seconds: float | None


@dataclass(frozen=True)
class DecisionResult:
    """The outcome of one of many decisions: the current review, or the error that prevented the decision."""

    review: UUID
    current: Review | None = None
    error: RetomaError | None = None


@dataclass(frozen=True)
class StepRevision:
    """One job at a revision. `reused_from` is the revision whose result it kept; `author` is the person who set it."""

    revision: int
    state: JobState
    output: Any
    author: str | None
    reused_from: int | None
    feedback: Any
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class Fact:
    """A fact that the application stored. `source` is JSON; `confidence` is from 0 to 1."""

    text: str
    source: Any
    confidence: float = 0.5


@dataclass(frozen=True)
class FailedAttempt:
    """An attempt without a result. `retry_at` is when the next attempt may start, if it was delayed."""

    step: str
    item: str
    started_at: datetime
    ended_at: datetime
    retry_at: datetime | None


@dataclass(frozen=True)
class Item:
    """One item of a fan-out across all of its steps. `step` is its current step, or the one at which it ended.

    It is `ready` until its first attempt starts, and `running` until its last step has ended. `attempt` counts its
    first attempt and every retry, at any step; `error` is the last error in this revision, if any. `output` is the
    result of the last step, and `author` the person who set it.
    """

    item: str
    position: int
    value: Any
    state: JobState
    step: str
    attempt: int
    code: str | None
    error: Any
    error_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    output: Any
    author: str | None


@dataclass(frozen=True)
class ItemTotals:
    """`last_item` is the item that reached a final state last, at `last_at`."""

    states: dict[JobState, int]
    last_item: str | None
    last_at: datetime | None

    @property
    def total(self) -> int:
        return sum(self.states.values())


@dataclass(frozen=True)
class Profile:
    """What an application stores about a tenant (a channel, a blog, a project). Each change increments `revision`."""

    tenant: str
    value: Any
    revision: int
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True)
class Event:
    id: int
    at: datetime
    kind: str
    revision: int
    attempt: int | None
    worker: int | None
    step: str | None
    item: str | None
    data: Any


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """An event of any run, without the stack trace of an error. `tenant` is the internal number of the tenant."""

    id: int
    run: UUID
    run_title: str | None
    tenant: int
    at: datetime
    kind: str
    revision: int
    attempt: int | None
    step: str | None
    item: str | None
    data: Any


@dataclass(frozen=True)
class ErrorCounts:
    """Jobs of a run that failed, other jobs that had a retried error, and the number of retried attempts."""

    failed: int
    recovered: int
    retried_attempts: int


@dataclass(frozen=True)
class StepProgress:
    """The number of jobs of one step of a run by state. An `each` step may have none yet."""

    step: str
    each: bool
    queue: str
    jobs: dict[JobState, int]
    started_at: datetime | None
    ended_at: datetime | None
    created_at: datetime | None = None

    @property
    def total(self) -> int:
        return sum(self.jobs.values())


@dataclass(frozen=True)
class WorkerRecord:
    id: int
    name: str
    queues: list[str]
    concurrency: int
    started_at: datetime
    heartbeat_age: timedelta

    ended_at: datetime | None
    heartbeat_timeout: timedelta | None = None  # None for a worker of an earlier release
    pipelines: list[str] | None = None  # None for a worker of an earlier release, which may serve any
    allow_hosts: list[str] | None = None  # the private hosts that it may call; None if unknown

    def is_alive(self, timeout: timedelta) -> bool:
        """Return whether the last heartbeat is within the worker's own timeout, or else within `timeout`."""
        return self.heartbeat_age <= (self.heartbeat_timeout or timeout)

    def serves(self, pipeline: str) -> bool:
        """Return whether the worker's application defines this pipeline, so that it can run its jobs."""
        return self.pipelines is None or pipeline in self.pipelines


@dataclass(frozen=True)
class ServerRecord:
    """A running server: the private hosts that it accepts in URLs, and its public URL."""

    allow_hosts: list[str]
    public_url: str | None


@dataclass(frozen=True)
class ExternalWork:
    """External work of a job. `external_id` identifies it at the provider; `polls` counts how often it was polled."""

    step: str
    item: str
    revision: int
    state: str
    external_id: Any
    parked_at: datetime
    running_at: datetime | None
    stopping_at: datetime | None
    ended_at: datetime | None
    progress: float | None
    polls: int
    failed_polls: int
    error: Any
    started_at: datetime | None = None
    """Start of the attempt that submitted it."""


@dataclass(frozen=True)
class Revision:
    """The result of a rerun or an edit: the new revision of the run, and how many jobs it reruns."""

    number: int
    jobs: int


@dataclass(frozen=True)
class Stuck:
    """A run without progress: since when, why, and how often it was resumed automatically.

    `data` holds the details: step, item, worker or queue, the last item with a result, and the sentence `explanation`.
    """

    run: UUID
    run_title: str | None
    pipeline: str
    tenant: str
    revision: int
    since: datetime
    cause: str
    data: Any
    resumes: int
    max_resumes: int


@dataclass(frozen=True)
class PoolRecord:
    """The state of a pool: `holders` jobs hold `used` slots, running or with external work; `waiting` jobs could start.

    `failures` counts consecutive failures of its provider. While the circuit breaker is open, `trouble` holds the error
    code: no job starts until `open_until`, and then one at a time.
    """

    name: str
    capacity: int
    used: int
    holders: int
    waiting: int
    rate: float | None
    burst: int
    per_tenant: int | None
    paused_until: datetime | None
    failures: int
    open_until: datetime | None
    trouble: str | None

    @property
    def free(self) -> int:
        return max(0, self.capacity - self.used)


@dataclass(frozen=True)
class ChargeRecord:
    """Usage that one attempt reported. `micros` is the cost in millionths of a US dollar, None if unknown. `price` is
    the version of the price, None if the provider reported the cost itself."""

    id: UUID
    run: UUID
    step: str
    item: str
    revision: int
    attempt: int
    at: datetime
    provider: str
    what: str
    tokens_in: int
    tokens_out: int
    units: float
    micros: int | None
    price: int | None


@dataclass(frozen=True)
class ChargeTotal:
    """Sums of charges. Fields that they are not grouped by are None. `unpriced` charges are missing in `micros`."""

    tenant: str | None
    run: UUID | None
    step: str | None
    item: str | None
    provider: str | None
    what: str | None
    charges: int
    tokens_in: int
    tokens_out: int
    units: float
    micros: int
    unpriced: int


@dataclass(frozen=True)
class Price:
    """A provider's price in millionths of a US dollar: per million tokens, and per unit."""

    provider: str
    what: str
    version: int
    since: datetime
    tokens_in: int
    tokens_out: int
    unit: int


@dataclass(frozen=True)
class DeliveryAttempt:
    """One attempt. `took` is None if the sender died before its end. `answer` is the beginning of the response."""

    attempt: int
    at: datetime
    took: timedelta | None
    status: int | None
    error: str | None
    answer: str | None


@dataclass(frozen=True)
class Delivery:
    """One event for one URL; its id is the `webhook-id`. `status` and `error` are of the last attempt.

    `next_at` is None if the delivery is over, or if it waits for the delivery before it. `body` and `attempts` are only
    set when a single delivery is requested.
    """

    id: UUID
    run: UUID
    run_title: str | None
    tenant: str
    pipeline: str
    event: str
    seq: int
    endpoint: int
    url: str
    state: DeliveryState
    attempt: int
    next_at: datetime | None
    created_at: datetime
    ended_at: datetime | None
    status: int | None
    error: str | None
    body: str | None = None
    attempts: tuple[DeliveryAttempt, ...] = ()


@dataclass(frozen=True)
class Endpoint:
    """A URL that receives webhooks of a tenant. `failures` are consecutive; nothing is sent until `open_until`.

    `events` are the events of all runs of the tenant that it subscribes to. The tenant `*` means all tenants.
    """

    id: int
    tenant: str
    url: str
    created_at: datetime
    failures: int
    failing_since: datetime | None
    open_until: datetime | None
    disabled_at: datetime | None
    disabled_because: str | None
    due: int
    dead: int
    events: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subscription:
    """A URL that receives these events of all runs of its tenant. `secret` signs them and is only set on creation."""

    id: int
    tenant: str
    url: str
    events: tuple[str, ...]
    created_at: datetime
    secret: str | None = field(default=None, repr=False)


def describe_recorded_error(error: Mapping[str, Any]) -> str:
    """Return the message of an error, prefixed with its type unless it has a specific code: `KeyError: 'v1'`."""
    message, kind = str(error.get("message") or ""), error.get("type")
    if not kind or error.get("code") != GENERIC_CODE:
        return message
    return f"{kind}: {message}" if message and message != kind else str(kind)


class WaitReason(StrEnum):
    """Why a job whose dependencies are met does not run."""

    DELAYED = "delayed"
    EXTERNAL_WORK = "external_work"
    PERSON = "person"
    UNDEFINED_STEP = "undefined_step"
    NO_WORKER = "no_worker"
    SUSPECT = "suspect"
    CAPACITY = "capacity"
    POOL = "pool"
    POOL_TOO_SMALL = "pool_too_small"
    POOL_PAUSED = "pool_paused"
    POOL_RATE = "pool_rate"
    POOL_SHARE = "pool_share"
    PROVIDER_DOWN = "provider_down"
    PROVIDER_REJECTED = "provider_rejected"
    NOT_CLAIMED = "not_claimed"


@dataclass(frozen=True)
class Wait:
    """Jobs of one step that wait for the same reason; `until` is when the first of them is due, `item` one of them."""

    step: str
    queue: str
    jobs: int
    item: str
    reason: WaitReason
    until: datetime | None
    code: str | None
    pool: str | None = None

    @property
    def explanation(self) -> str:
        """Return the reason as a sentence, with what to do about it, if anything."""
        one = f"{self.step} of {self.item}" if self.item else self.step
        subject = f"{self.jobs} jobs of {self.step}" if self.jobs > 1 else one
        return f"{subject}: {self._explain()}"

    def _explain(self) -> str:
        until = f" until {self.until:%Y-%m-%d %H:%M:%S} UTC" if self.until else ""
        match self.reason:
            case WaitReason.DELAYED:
                return f"delayed{until}{f' ({self.code})' if self.code else ''}"
            case WaitReason.EXTERNAL_WORK:
                return f"waiting for external work, which is polled again{until.replace(' until', ' at')}"
            case WaitReason.PERSON:
                return "waiting for a person; `retoma reviews list` shows the open reviews"
            case WaitReason.UNDEFINED_STEP:
                return f"no worker defines the step {self.step!r} as this run needs it; `retoma check APP` says why"
            case WaitReason.NO_WORKER:
                return (
                    f"no live worker serves queue {self.queue!r} of this pipeline; "
                    f"start one: retoma worker APP -q {self.queue}"
                )
            case WaitReason.CAPACITY:
                return f"waiting for capacity: every worker of queue {self.queue!r} is full"
            case WaitReason.POOL:
                return f"waiting for capacity: pool {self.pool!r} has too few free slots"
            case WaitReason.POOL_TOO_SMALL:
                return f"pool {self.pool!r} has fewer slots than the job needs; raise it: retoma pools set {self.pool}"
            case WaitReason.POOL_PAUSED:
                return f"the provider behind pool {self.pool!r} is rate limiting; `retoma pools list` shows until when"
            case WaitReason.POOL_RATE:
                return f"pool {self.pool!r} has reached its rate of job starts per second"
            case WaitReason.POOL_SHARE:
                return f"its tenant holds as many slots of pool {self.pool!r} as one tenant may"
            case WaitReason.PROVIDER_DOWN:
                return f"the provider behind pool {self.pool!r} is failing; one job at a time probes it"
            case WaitReason.PROVIDER_REJECTED:
                return (
                    f"the provider behind pool {self.pool!r} rejected our credentials: "
                    f"check the API key and billing, then `retoma pools set {self.pool} --resume`"
                )
            case WaitReason.SUSPECT:
                return "it was running when a worker died, so it is retried in isolation, one at a time"
            case WaitReason.NOT_CLAIMED:
                return f"ready; if it stays ready, no worker of queue {self.queue!r} defines its pipeline"


class Scope(StrEnum):
    """What an API key may do. `admin` includes everything."""

    RUNS_READ = "runs:read"
    RUNS_WRITE = "runs:write"
    POOLS_READ = "pools:read"
    POOLS_WRITE = "pools:write"
    DELIVERIES_READ = "deliveries:read"
    DELIVERIES_WRITE = "deliveries:write"
    METRICS_READ = "metrics:read"
    REVIEWS_WRITE = "reviews:write"
    ADMIN = "admin"


# These reach beyond a tenant, so the key of one tenant cannot have them.
CROSS_TENANT_SCOPES = frozenset({Scope.POOLS_WRITE, Scope.METRICS_READ, Scope.ADMIN})


@dataclass(frozen=True)
class KeyRecord:
    """An API key without its secret, which begins with `hint`. Without a tenant it covers all; `used_at` is coarse."""

    id: int
    name: str
    tenant: str | None
    scopes: frozenset[Scope]
    hint: str
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True)
class NewKey:
    """`secret` is the key itself. It is not stored, so it can only be shown now."""

    key: KeyRecord
    secret: str = field(repr=False)
