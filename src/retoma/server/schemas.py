"""Request and response bodies of the API, as the OpenAPI document describes them.

A response contains records (`retoma.records`) as they are. A schema here is a page of them, or says how it differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Header
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from retoma.client.budgets import MAX_BUDGET, MAX_RATE
from retoma.define.options import MAX_PRIORITY
from retoma.define.webhook import EVENTS, MAX_RETRIES
from retoma.engine.reviews import MAX_COMMENTS, MAX_NOTES_LENGTH, MAX_UNDO
from retoma.engine.reviews import MAX_ITEMS as MAX_ITEMS_SENT_BACK
from retoma.records import (
    AuditEntry,
    BudgetAction,
    BudgetPeriodTotal,
    BudgetStatus,
    BulkAction,
    Charge,
    ChargeTotal,
    Connection,
    Delivery,
    Endpoint,
    ErrorCounts,
    Event,
    ItemStatus,
    Orphan,
    Pool,
    RetentionRule,
    RetentionTotals,
    Review,
    Run,
    RunHold,
    RunRemoval,
    RunSummary,
    StepRevision,
    StuckRun,
    Subject,
    Subscription,
    TableSize,
    WaitingRetry,
)
from retoma.states import RunState
from retoma.terminal import UNSAFE_CHARACTERS

MAX_INPUTS = 10_000
MAX_DECISIONS = 200
MAX_RECORDING_SECONDS = 10**7
MAX_QUOTE_LENGTH = 2_000
MAX_PAGE_SIZE = 500
MAX_BIGINT = 2**63 - 1
MAX_INT = 2**31 - 1


def _check_storable(value: str) -> str:
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("contains a NUL character or an unpaired surrogate")
    return value


Name = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]+$"), AfterValidator(_check_storable)]
PersonName = Annotated[
    str,
    Field(min_length=1, max_length=500, pattern=rf"^[^\s{UNSAFE_CHARACTERS}][^{UNSAFE_CHARACTERS}]*$"),
    AfterValidator(_check_storable),
]
ScheduleName = Annotated[
    str,
    Field(min_length=1, max_length=100, pattern=rf"^[^/{UNSAFE_CHARACTERS}]+$"),
    AfterValidator(_check_storable),
]
ItemKey = Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$"), AfterValidator(_check_storable)]
Notes = Annotated[str, Field(max_length=MAX_NOTES_LENGTH, pattern=r"^[^\x00]*$"), AfterValidator(_check_storable)]
WebhookUrl = Annotated[
    str,
    AfterValidator(_check_storable),
    Field(
        min_length=1,
        max_length=2_000,
        json_schema_extra={"format": "uri"},
        description="A public URL, preferably with https.",
    ),
]
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE, description="The maximum number of results.")]
Before = Annotated[UUID | None, Field(description="`next` of the previous page.")]


def idempotency_key_header(description: str) -> Any:
    """Return the header for a route: `key: Annotated[str | None, idempotency_key_header("...")] = None`."""
    return Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$",
        description=description,
    )


class RequestBody(BaseModel):
    """The body of a request. Unknown fields are errors, so a misspelt name is not ignored."""

    model_config = ConfigDict(extra="forbid")


class FieldError(BaseModel):
    field: str
    message: str


class Problem(BaseModel):
    """The body of an error, as RFC 9457 defines it. Some errors have additional members."""

    type: str
    title: str
    status: int
    detail: str = Field(description="What happened, to which object, and what to do.")
    code: str = Field(description="A stable code for programs.")
    errors: list[FieldError] = Field([], description="The invalid fields, if any.")


class WebhookRequest(RequestBody):
    url: WebhookUrl
    events: list[Literal[EVENTS]] = Field(["run.ended"], min_length=1, max_length=20)  # type: ignore[valid-type]
    schedule: Literal["standard", "short"] = Field("standard", description="`short` gives up after five attempts.")
    retries: int | None = Field(
        None, ge=0, le=MAX_RETRIES, description="The maximum number of retries after the first attempt."
    )


class _StartOptions(RequestBody):
    pipeline: Name
    tenant: Name | None = Field(
        None, description="The tenant of the run. Default: the tenant of the API key, or `default`."
    )
    priority: int = Field(
        0,
        ge=-MAX_PRIORITY,
        le=MAX_PRIORITY,
        description="Higher runs first. One level outweighs ten minutes of waiting.",
    )
    webhook: WebhookRequest | None = None


class StartRequest(_StartOptions):
    input: dict[str, Any] = Field({}, description="The inputs of the pipeline. GET /pipelines returns their schema.")
    run_at: AwareDatetime | None = Field(None, description="Start at this time. Default: now.")


class BulkStartRequest(_StartOptions):
    inputs: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_INPUTS)


class StartedRun(BaseModel):
    id: UUID
    created: bool = Field(description="False if the Idempotency-Key was used before and this is the existing run.")


class StartedRuns(BaseModel):
    runs: list[UUID] = Field(description="In the order of the inputs.")


class RunPage(BaseModel):
    runs: list[RunSummary]
    next: UUID | None = Field(description="Pass it as `before` to get the next page. Null on the last page.")


class StepStatus(BaseModel):  # with sums, for clients that show a progress bar
    model_config = ConfigDict(from_attributes=True)

    step: str
    each: bool = Field(description="Whether the step runs one job per item.")
    queue: str
    jobs: dict[str, int] = Field(description="The number of jobs in each state.")
    ended: int = Field(validation_alias="ended_count")
    total: int
    started_at: datetime | None
    ended_at: datetime | None


class Wait(BaseModel):  # with its explanation, which the record computes
    model_config = ConfigDict(from_attributes=True)

    step: str
    item: str
    jobs: int
    reason: str
    explanation: str = Field(description="The reason as a sentence.")
    until: datetime | None
    child: UUID | None = Field(description="The child run that the job waits for, or one of them.")


class OpenReview(BaseModel):  # without the fields of the run that contains it, or of its decision
    model_config = ConfigDict(from_attributes=True)

    id: UUID
    step: str
    item: str
    planned: bool = Field(description="True if the pipeline defines this review; false if the step requested it.")
    opened_at: datetime
    due_at: datetime | None
    assignee: str | None


class RunError(BaseModel):
    model_config = ConfigDict(extra="allow")

    step: str
    item: str
    attempt: int | None = None
    code: str | None = None
    message: str | None = None
    provider: str | None = Field(None, description="The provider of a chain that the attempt used.")
    next_provider: str | None = Field(None, description="The provider to which the job moved on, if it did.")
    retried: bool = Field(False, description="True if the job has not failed: a later attempt succeeded or is pending.")


@dataclass(frozen=True, kw_only=True)
class RunDetails(Run):
    reviews: Annotated[list[OpenReview], Field(description="Open reviews, oldest first, at most 100.")]
    steps: list[StepStatus]
    estimated_end_at: Annotated[
        datetime | None,
        Field(description="Extrapolated from the pace of its items. Null if unknown, in review or stuck."),
    ]
    children: Annotated[dict[str, int], Field(description="The number of its child runs in each state.")]
    waits: Annotated[list[Wait], Field(description="Why jobs that could run are waiting.")]
    errors: Annotated[
        list[RunError], Field(description="The latest error of each job, failed jobs first, at most 100.")
    ]
    error_counts: ErrorCounts
    orphans: Annotated[
        list[Orphan],
        Field(
            description="Calls that jobs without a result may have left at a provider; only a person can resolve them."
        ),
    ]


class RunStatus(BaseModel):
    id: UUID
    state: RunState = Field(description="`cancelling` until the running jobs have ended.")


class ResumedRun(RunStatus):
    note: str | None = Field(None, description="Why the run cannot continue yet, such as no running worker.")


class EventPage(BaseModel):
    events: list[Event]
    next: int | None = Field(description="Pass it as `after` to get later entries. Null if there are none yet.")


class PoolList(BaseModel):
    pools: list[Pool]


class PoolRequest(RequestBody):
    """Changes to a pool. Omitted fields keep their values."""

    capacity: int | None = Field(
        None, ge=0, le=1_000_000, description="The number of slots. Running jobs keep the slots they hold."
    )
    rate: float | None = Field(
        None, ge=0, le=1_000_000, description="Jobs that may start per second, at least 0.000001; 0 removes the limit."
    )
    burst: int | None = Field(None, ge=1, le=1_000_000, description="Jobs that may start at once after an idle period.")
    per_tenant: int | None = Field(
        None,
        ge=0,
        le=1_000_000,
        description="The maximum number of slots that one tenant may hold; 0 removes the limit.",
    )
    resume: bool = Field(False, description="End a pause that the provider requested.")


class BudgetList(BaseModel):
    budgets: list[BudgetStatus]


class BudgetHistory(BaseModel):
    periods: list[BudgetPeriodTotal] = Field(description="The current period first. A budget per run has none.")


class BudgetRequest(RequestBody):
    """A budget. Omitted fields keep their values; a new budget asks a person (`review`), and warns at 0.8."""

    micros: int = Field(ge=0, le=MAX_BUDGET, description="The limit, in millionths of a US dollar.")
    action: BudgetAction | None = Field(
        None, description="`notify` only tells people; `review` also asks a person before the budget is passed."
    )
    warn_at: float | None = Field(None, gt=0, le=1, description="The share of the limit from which people are warned.")


class ConnectionList(BaseModel):
    connections: list[Connection] = Field(description="Those for all tenants first.")


class ConnectionRequest(RequestBody):
    """The fields to change. Omitted fields keep their values; an empty text removes one."""

    fields: dict[str, str] = Field(
        max_length=50,
        description="The fields of the service, secret or not. Secrets are encrypted, and never returned. If an "
        "address changes, all secrets must be given too.",
    )


class MoneyRequest(RequestBody):
    """How amounts of a tenant are shown. Without a currency, in US dollars only."""

    time_zone: Name = Field(
        "UTC",
        description="In which days and months begin, such as America/Sao_Paulo.",
        json_schema_extra={"format": "time-zone"},
    )
    currency: str | None = Field(None, pattern="^[A-Z]{3}$", description="Such as BRL.")
    rate: Decimal | None = Field(None, gt=0, le=MAX_RATE, description="Units of the currency for a US dollar.")
    rate_date: date | None = Field(None, description="The date of the rate.")


class ChargePage(BaseModel):
    micros: int = Field(description="The cost of the run and its child runs so far, in millionths of a US dollar.")
    charges: list[Charge] = Field(description="Of the run itself. Its child runs have their own.")
    totals: list[ChargeTotal] = Field(description="By step, with the steps of its child runs.")
    next: UUID | None = Field(description="Pass it as `after` to get later entries. Null if there are none yet.")


class ChargeTotals(BaseModel):
    totals: list[ChargeTotal] = Field(description="Highest cost first.")


class DeliveryPage(BaseModel):
    deliveries: list[Delivery]
    next: UUID | None = Field(description="Pass it as `before` to get the next page. Null on the last page.")


class AuditPage(BaseModel):
    entries: list[AuditEntry]
    next: int | None = Field(description="Pass it as `before` to get the next page. Null on the last page.")


class RedeliverRequest(RequestBody):
    endpoint: int | None = Field(None, ge=1, le=MAX_INT)
    url: Name | None = None
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None


class RedeliverResult(BaseModel):
    deliveries: int = Field(description="The number of deliveries that will be sent again.")


class SubscriptionRequest(RequestBody):
    url: WebhookUrl
    events: list[Literal[EVENTS]] = Field(min_length=1, max_length=20)  # type: ignore[valid-type]
    tenant: Name | None = Field(
        None, description="Only runs of this tenant. Default: the tenant of the API key, or all tenants."
    )


class SubscriptionPage(BaseModel):
    webhooks: list[Subscription]
    next: int | None = Field(description="Pass it as `before` to get the next page. Null on the last page.")


class EndpointPage(BaseModel):
    endpoints: list[Endpoint]
    next: int | None = Field(description="Pass it as `before` to get the next page. Null on the last page.")


class QueueStatus(BaseModel):  # with the job counts that tell whether it needs more workers
    queue: str
    ready: int
    running: int
    delayed: int
    oldest_seconds: float | None = Field(description="How long the next job has been ready.")
    workers: int = Field(description="The number of running workers that serve this queue.")
    concurrency: int | None = Field(description="The most jobs of this queue that all workers run at once, if limited.")
    paused_at: datetime | None = Field(description="Since when no job of this queue starts. Null unless it is paused.")
    paused_by: str | None = Field(description="Who paused it. Null for a key of one tenant.")
    pause_reason: str | None = Field(description="Why. Null for a key of one tenant.")


class QueueRequest(RequestBody):
    concurrency: int = Field(
        ge=0, le=1_000_000, description="The most jobs that all workers run at once; 0 removes the limit."
    )


class PauseRequest(RequestBody):
    reason: Name | None = Field(None, description="Why, for everyone who finds the queue paused.")


class QueueList(BaseModel):
    queues: list[QueueStatus]


class Worker(BaseModel):  # without its timeout, pipelines and private hosts, which operators see with the CLI
    id: int
    name: str
    queues: list[str]
    concurrency: int
    started_at: datetime
    heartbeat_age_seconds: float
    drain_requested_at: datetime | None = Field(
        description="Since when the worker claims nothing. It exits when its jobs have ended."
    )


class WorkerList(BaseModel):
    workers: list[Worker]


class BulkActionList(BaseModel):
    bulk_actions: list[BulkAction]


class RetentionRuleList(BaseModel):
    rules: list[RetentionRule]


class RunHoldList(BaseModel):
    holds: list[RunHold]


class RetentionDetails(BaseModel):
    totals: RetentionTotals
    removals: list[RunRemoval]
    tables: list[TableSize]


class RunsRemoved(BaseModel):
    runs: int = Field(description="How many runs were removed.")


class RetryList(BaseModel):
    retries: list[WaitingRetry]


class Pipeline(BaseModel):
    name: str
    input_schema: dict[str, Any] | None = Field(description="A JSON Schema. Null if the pipeline has no inputs.")
    steps: list[str]


class PipelineList(BaseModel):
    pipelines: list[Pipeline]


class Health(BaseModel):
    status: str


class Readiness(Health):
    loop_restarts: dict[str, int] = Field(
        description="The number of restarts of each background loop of this server after a failure."
    )


class ItemPage(BaseModel):
    items: list[ItemStatus]
    next: int | None = Field(description="Pass it as `after` to get the next page. Null on the last page.")


class StuckRunPage(BaseModel):
    stuck: list[StuckRun]


class OrphanPage(BaseModel):
    orphans: list[Orphan]
    next: str | None = Field(description="Pass it as `after` to get the next page. Null on the last page.")


class ReviewPage(BaseModel):
    reviews: list[Review]
    next: UUID | None = Field(description="Pass it as `after` to get the next page. Null on the last page.")


@dataclass(frozen=True, kw_only=True)
class ReviewDetails(Review):
    subjects: Annotated[list[Subject], Field(description="The results under review.")]
    form: Annotated[
        dict[str, Any] | None, Field(description="The JSON Schema of `value`. Null if this server does not know it.")
    ]
    feedback_form: Annotated[
        dict[str, Any] | None,
        Field(description="The JSON Schema of `extra`. Null if feedback consists of `notes` only."),
    ]
    comments: Annotated[list[Any], Field(description="Comments on moments of a recording.")]
    history: Annotated[list[Event], Field(description="Review events of this step and item in this run, oldest first.")]


class CommentRequest(RequestBody):
    text: Notes
    at: float | None = Field(
        None, ge=0, le=MAX_RECORDING_SECONDS, description="The start, in seconds from the beginning of the recording."
    )
    to: float | None = Field(
        None, ge=0, le=MAX_RECORDING_SECONDS, description="The end in seconds, if the comment is about a range."
    )
    quote: str = Field("", max_length=MAX_QUOTE_LENGTH, description="The passage that the comment is about.")


class DecisionRequest(RequestBody):
    action: Literal["approve", "send_back", "reject"]
    value: Any = Field(
        None, description="An edited result to approve, or the submitted form. If omitted, approves the subject."
    )
    notes: Notes = Field("", description="The reason. Required to reject, or to send back without other feedback.")
    to: Name | None = Field(None, description="The step to send the work back to.")
    items: list[ItemKey] | None = Field(
        None, max_length=MAX_ITEMS_SENT_BACK, description="The items to send back. Default: all."
    )
    comments: list[CommentRequest] = Field([], max_length=MAX_COMMENTS)
    extra: dict[str, Any] = Field({}, description="Feedback as defined by `feedback_form`, to send back.")
    seen: int | None = Field(
        None, ge=1, le=MAX_INT, description="The revision that was reviewed. Alternative to `If-Match`."
    )
    undo_seconds: float = Field(
        0,
        ge=0,
        le=MAX_UNDO.total_seconds(),
        description="Delay before the decision takes effect; it can be undone until then.",
    )


class BulkDecision(DecisionRequest):
    review: UUID


class BulkDecisionRequest(RequestBody):
    decisions: list[BulkDecision] = Field(min_length=1, max_length=MAX_DECISIONS)


class DecisionOutcome(BaseModel):
    review: UUID
    current: Review | None = Field(description="The review after the decision. Null if it failed; see `problem`.")
    problem: dict[str, Any] | None = Field(description="The error, as a `Problem`.")


class DecisionOutcomes(BaseModel):
    outcomes: list[DecisionOutcome] = Field(description="In the order of the decisions.")


class AssignRequest(RequestBody):
    assignee: Name | None = Field(description="The person to assign the review to. Null removes the assignment.")


class StaleJob(BaseModel):
    step: str
    item: str


class StaleList(BaseModel):
    stale: list[StaleJob] = Field(description="Results that were computed from outdated inputs.")


class StepRevisionList(BaseModel):
    revisions: list[StepRevision] = Field(description="Newest first.")


class RunEventData(BaseModel):
    run: UUID
    title: str | None = Field(None, description="Null if the run has no title.")
    tenant: str
    pipeline: str
    state: RunState
    seq: int = Field(description="The sequence number of the event among those of this run to this URL.")
    error: dict[str, Any] | None = Field(None, description="The error of a failed run.")
    url: str = Field(description="The URL of the run, or only its path if RETOMA_PUBLIC_URL is not set.")
    input: Any = Field(None, description="Null if the body would be too large.")
    results: dict[str, Any] | None = Field(
        None, description="Results by step. Null if the run has not ended, or if the body would be too large."
    )
    review: dict[str, Any] | None = Field(None, description="The review, in `review.opened` events.")
    stuck: dict[str, Any] | None = Field(None, description="The cause, in `run.stuck` events.")
    omitted: list[str] = Field([], description="The fields that are null because the body would be too large.")


class RunEvent(BaseModel):
    """The body of a webhook about a run."""

    type: str = Field(description="The event type, such as `run.completed`.")
    timestamp: datetime = Field(description="The time of the event.")
    data: RunEventData
