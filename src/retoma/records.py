"""What the client gives back: facts about runs, jobs, events and workers, as the database had them."""

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
GENERIC_CODE = "ERROR"  # of an error that has no code of its own
ABOUT_FIELDS = ("topic", "title", "name", "subject")
"""Fields of an input that say what a run is about."""


@dataclass(frozen=True)
class Run:
    id: UUID
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
        """As its input says: what it calls so, or else the first text in it."""
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
    """A question to a person about a job, and their answer.

    A planned one is a step of its pipeline; in the others a step asks for help, and `reason` says why. A decision takes
    effect at `effective_at`; until then it can be undone. `value` is what was approved, if it was not the subject as
    it stood. `sent_back` counts how often this went back in its run, of `most_sent_back` times at most.
    """

    id: UUID
    run: UUID
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
    has_form: bool = False  # an approval fills in a form

    @property
    def is_open(self) -> bool:
        return self.state is ReviewState.OPEN

    @property
    def can_be_undone(self) -> bool:
        return self.decided_by is not None and self.applied_at is None


@dataclass(frozen=True)
class Subject:
    """A result that a person is asked about."""

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
    """`first_decided` are those that nobody had been asked before in their run; the mean wait is in seconds."""

    decided: int
    first_decided: int
    approved_at_once: int
    mean_wait: float | None


@dataclass(frozen=True)
class PipelineMetrics:
    """Runs that ended, and `failed` ones among them; neither rejected nor cancelled ones are.

    `steps` had an attempt and came to an end, also in runs that are still open; `retried` of them had more than one.
    The seconds are those of the `timed` runs, without people: completed ones, and open ones that have only steps left
    whose time is not counted.
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
    """How one decision of many ended: the review as it stands now, or why it was not decided."""

    review: UUID
    current: Review | None = None
    error: RetomaError | None = None


@dataclass(frozen=True)
class StepRevision:
    """One job as it was at a revision. `reused_from` is the revision whose result it kept; `author` a person."""

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
    """Something that an application has learnt. `source` is JSON; `confidence` is from 0 to 1."""

    text: str
    source: Any
    confidence: float = 0.5


@dataclass(frozen=True)
class FailedAttempt:
    """An attempt that gave no result. `again_at` is when the next one may begin, if that was put off."""

    step: str
    item: str
    started_at: datetime
    ended_at: datetime
    retry_at: datetime | None


@dataclass(frozen=True)
class Item:
    """One item of a fan-out over all of its steps. `step` is the one that it stands at, or ended at.

    It is `ready` until an attempt at it begins, and `running` until its last step has ended. `attempt` counts the
    first attempt at it and every repeated one, at whichever step; `error` is what the last failure or retry said, if
    there was one in this revision. `output` is of the last step, and `author` the person who gave it.
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
    """`last_item` is the one whose state was final last, at `last_at`."""

    states: dict[JobState, int]
    last_item: str | None
    last_at: datetime | None

    @property
    def total(self) -> int:
        return sum(self.states.values())


@dataclass(frozen=True)
class Profile:
    """What an application knows of a tenant (a channel, a blog, a project). `revision` grows with every change."""

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
    """An event of any run, without the stack of an error. `tenant` is the number of its run's."""

    id: int
    run: UUID
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
    """How many jobs of a run have failed, how many others had an error that was retried, and the attempts retried."""

    failed: int
    recovered: int
    retried_attempts: int


@dataclass(frozen=True)
class StepProgress:
    """How many jobs of one step of a run are in which state. An `each` step may have none yet."""

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
    heartbeat_timeout: timedelta | None = None  # its own; a worker of an earlier release has none
    pipelines: list[str] | None = None  # None for a worker of an earlier release, which may serve any
    allow_hosts: list[str] | None = None  # the private hosts that it may call; None if it did not say

    def is_alive(self, timeout: timedelta) -> bool:
        """Whether its last heartbeat is recent enough, by its own timeout; by this one if it has none."""
        return self.heartbeat_age <= (self.heartbeat_timeout or timeout)

    def serves(self, pipeline: str) -> bool:
        """Whether its application defines this pipeline: only then it runs its jobs and polls its external work."""
        return self.pipelines is None or pipeline in self.pipelines


@dataclass(frozen=True)
class ServerRecord:
    """A running server: the private hosts that it accepts in URLs, and where it is reached from outside."""

    allow_hosts: list[str]
    public_url: str | None


@dataclass(frozen=True)
class ExternalWork:
    """Work of a job that is or was done outside. `handle` is what the outside knows it by, `looks` is how often it was
    asked for."""

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
    """When the attempt began that handed it over."""


@dataclass(frozen=True)
class Revision:
    """What an act has made anew: the run's revision, and how many jobs."""

    number: int
    jobs: int


@dataclass(frozen=True)
class Stuck:
    """A run that should go on and does not: since when, for which cause, and how often it was resumed by itself.

    `data` has what is known: step, item, worker or queue, the last item with a result, the sentence `why`.
    """

    run: UUID
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
    """`used` slots are held by `holders` jobs that run or whose outside work does; `waiting` jobs could begin.

    `failures` of its provider came in a row. While there is `trouble`, its code, nothing begins until `open_until`, and
    then one job at a time.
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
    """What one attempt has used. `micros` are millionths of a US dollar; None if nobody knows. `price` is the version
    of the price, None if the provider told the sum itself."""

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
    """Sums of charges. What they are not told apart by is None. `unpriced` of them are not in `micros`."""

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
    """What a provider takes, in millionths of a US dollar: for a million tokens, and for one unit."""

    provider: str
    what: str
    version: int
    since: datetime
    tokens_in: int
    tokens_out: int
    unit: int


@dataclass(frozen=True)
class DeliveryAttempt:
    """One try. Without `took` its end is not known, because the sender died. `answer` is the beginning of it."""

    attempt: int
    at: datetime
    took: timedelta | None
    status: int | None
    error: str | None
    answer: str | None


@dataclass(frozen=True)
class Delivery:
    """One event owed to one URL; its id is the `webhook-id`. `status` and `error` are of the last attempt.

    `next_at` is None if it is over, or if it waits for the delivery before it. `body` and `attempts` come only when
    one delivery is asked for.
    """

    id: UUID
    run: UUID
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
    """A URL that webhooks of a tenant go to. `failures` are in a row; until `open_until` nothing is sent.

    `events` are those of all runs of the tenant that it has subscribed to. The tenant `*` stands for all tenants.
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
    """A URL that gets these events of all runs of its tenant. `secret` signs them; it is shown only at the start."""

    id: int
    tenant: str
    url: str
    events: tuple[str, ...]
    created_at: datetime
    secret: str | None = field(default=None, repr=False)


def describe_recorded_error(error: Mapping[str, Any]) -> str:
    """Return what an error said, after its type unless it has a code of its own: `KeyError: 'v1'`."""
    message, kind = str(error.get("message") or ""), error.get("type")
    if not kind or error.get("code") != GENERIC_CODE:
        return message
    return f"{kind}: {message}" if message and message != kind else str(kind)


class WaitReason(StrEnum):
    """Why a job that needs nothing more does not run."""

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
        """The reason as a sentence, with what to do where there is something."""
        one = f"{self.step} of {self.item}" if self.item else self.step
        who = f"{self.jobs} jobs of {self.step}" if self.jobs > 1 else one
        return f"{who}: {self._explain()}"

    def _explain(self) -> str:
        until = f" until {self.until:%Y-%m-%d %H:%M:%S} UTC" if self.until else ""
        match self.reason:
            case WaitReason.DELAYED:
                return f"delayed{until}{f' ({self.code})' if self.code else ''}"
            case WaitReason.EXTERNAL_WORK:
                return f"its work is done outside, and is looked at again{until.replace(' until', ' at')}"
            case WaitReason.PERSON:
                return "it waits for a person; `retoma reviews list` shows what they are asked"
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
                return f"pool {self.pool!r} has fewer slots than it takes; widen it: retoma pools set {self.pool}"
            case WaitReason.POOL_PAUSED:
                return f"the provider behind pool {self.pool!r} asked to wait; `retoma pools list` says until when"
            case WaitReason.POOL_RATE:
                return f"pool {self.pool!r} lets only so many begin in a second"
            case WaitReason.POOL_SHARE:
                return f"its tenant has as many slots of pool {self.pool!r} as one may have"
            case WaitReason.PROVIDER_DOWN:
                return f"the provider behind pool {self.pool!r} fails; it is tried again with one job at a time"
            case WaitReason.PROVIDER_REJECTED:
                return (
                    f"the provider behind pool {self.pool!r} refuses us: mend the key or the payment, then "
                    f"`retoma pools set {self.pool} --resume`"
                )
            case WaitReason.SUSPECT:
                return "it ran when a worker died, so it runs again one at a time"
            case WaitReason.NOT_CLAIMED:
                return f"ready; if it stays so, no worker of queue {self.queue!r} defines its pipeline"


class Scope(StrEnum):
    """What an API key may do. `admin` may do everything."""

    RUNS_READ = "runs:read"
    RUNS_WRITE = "runs:write"
    POOLS_READ = "pools:read"
    POOLS_WRITE = "pools:write"
    DELIVERIES_READ = "deliveries:read"
    DELIVERIES_WRITE = "deliveries:write"
    METRICS_READ = "metrics:read"
    REVIEWS_WRITE = "reviews:write"
    ADMIN = "admin"


# They reach beyond any tenant, so that a key of one tenant cannot have them.
CROSS_TENANT_SCOPES = frozenset({Scope.POOLS_WRITE, Scope.METRICS_READ, Scope.ADMIN})


@dataclass(frozen=True)
class KeyRecord:
    """An API key, but for its secret, which begins with `hint`. Without a tenant it is for all; `used_at` is coarse."""

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
    """`secret` is the key itself. It is nowhere else, so that it can be shown only now."""

    key: KeyRecord
    secret: str = field(repr=False)
