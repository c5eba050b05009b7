"""Request and response bodies of the API, as the OpenAPI document describes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Header
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from retoma.define.options import MAX_PRIORITY
from retoma.define.webhook import EVENTS, MAX_RETRIES
from retoma.engine.reviews import MAX_COMMENTS, MAX_NOTES_LENGTH, MAX_UNDO
from retoma.engine.reviews import MAX_ITEMS as MAX_ITEMS_SENT_BACK
from retoma.states import DeliveryState, JobState, ReviewState, RunState

MAX_INPUTS = 10_000
MAX_DECISIONS = 200
MAX_RECORDING_SECONDS = 10**7
MAX_PAGE_SIZE = 500
MAX_BIGINT = 2**63 - 1
MAX_INT = 2**31 - 1


def _check_storable(value: str) -> str:
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("contains a NUL character or an unpaired surrogate")
    return value


Name = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]+$"), AfterValidator(_check_storable)]
ItemKey = Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$"), AfterValidator(_check_storable)]
Notes = Annotated[str, Field(max_length=MAX_NOTES_LENGTH, pattern=r"^[^\x00]*$"), AfterValidator(_check_storable)]
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
    url: Annotated[str, AfterValidator(_check_storable)] = Field(
        min_length=1,
        max_length=2_000,
        json_schema_extra={"format": "uri"},
        description="A public URL, preferably with https.",
    )
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


class RunSchema(BaseModel):
    id: UUID
    title: str | None = Field(description="What people call it, if its pipeline makes titles.")
    tenant: str
    pipeline: str
    version: int
    state: RunState
    revision: int
    created_at: datetime
    run_at: datetime
    ended_at: datetime | None


class RunPage(BaseModel):
    runs: list[RunSchema]
    next: UUID | None = Field(description="Pass it as `before` to get the next page. Null on the last page.")


class StepSchema(BaseModel):
    step: str
    each: bool = Field(description="Whether the step runs one job per item.")
    queue: str
    jobs: dict[str, int] = Field(description="The number of jobs in each state.")
    ended: int
    total: int
    started_at: datetime | None
    ended_at: datetime | None


class WaitSchema(BaseModel):
    step: str
    item: str
    jobs: int
    reason: str
    explanation: str = Field(description="The reason as a sentence.")
    until: datetime | None


class ErrorSchema(BaseModel):
    model_config = ConfigDict(extra="allow")

    step: str
    item: str
    attempt: int | None = None
    code: str | None = None
    message: str | None = None
    retried: bool = Field(False, description="True if the job has not failed: a later attempt succeeded or is pending.")


class ErrorCountsSchema(BaseModel):
    failed: int = Field(description="Jobs that failed.")
    recovered: int = Field(description="Jobs that had a failed attempt but have not failed.")
    retried_attempts: int = Field(description="Attempts that failed and were retried.")


class OpenReview(BaseModel):
    id: UUID
    step: str
    item: str
    planned: bool = Field(description="True if the pipeline defines this review; false if the step requested it.")
    opened_at: datetime
    due_at: datetime | None
    assignee: str | None


class RunDetails(RunSchema):
    input: Any
    forked_from: UUID | None = Field(description="The run that this run was forked from.")
    reviews: list[OpenReview] = Field(description="Open reviews, oldest first, at most 100.")
    steps: list[StepSchema]
    estimated_end_at: datetime | None = Field(
        description="Extrapolated from the pace of its items. Null if unknown, in review or stuck."
    )
    waits: list[WaitSchema] = Field(description="Why jobs that could run are waiting.")
    errors: list[ErrorSchema] = Field(description="The latest error of each job, failed jobs first, at most 100.")
    error_counts: ErrorCountsSchema


class RunStateSchema(BaseModel):
    id: UUID
    state: RunState = Field(description="`cancelling` until the running jobs have ended.")


class ResumedRun(RunStateSchema):
    note: str | None = Field(None, description="Why the run cannot continue yet, such as no live worker.")


class EventSchema(BaseModel):
    id: int
    at: datetime
    kind: str
    revision: int
    attempt: int | None
    worker: int | None
    step: str | None
    item: str | None
    data: Any


class EventPage(BaseModel):
    events: list[EventSchema]
    next: int | None = Field(description="Pass it as `after` to get later entries. Null if there are none yet.")


class PoolSchema(BaseModel):
    name: str
    capacity: int
    used: int
    waiting: int
    rate: float | None
    burst: int
    per_tenant: int | None = Field(description="The maximum number of slots that one tenant may hold.")
    paused_until: datetime | None
    failures: int = Field(description="Consecutive failures of the provider.")
    open_until: datetime | None = Field(
        description="The circuit breaker is open until this time; then one job probes the provider."
    )
    trouble: str | None = Field(
        description="PROVIDER_DOWN or PROVIDER_REJECTED, until a call to the provider succeeds."
    )


class PoolList(BaseModel):
    pools: list[PoolSchema]


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


class ChargeSchema(BaseModel):
    id: UUID
    step: str
    item: str
    revision: int
    attempt: int
    at: datetime
    provider: str
    what: str = Field(description="For example a model, a voice or a machine type.")
    tokens_in: int
    tokens_out: int
    units: float
    micros: int | None = Field(description="In millionths of a US dollar. Null if there is no price.")
    price: int | None = Field(
        description="The version of the price. Null if the provider reported the cost or there is no price."
    )


class ChargeTotalSchema(BaseModel):
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
    micros: int = Field(description="In millionths of a US dollar.")
    unpriced: int = Field(description="The number of charges without a price, which the sum excludes.")


class ChargePage(BaseModel):
    micros: int = Field(description="The cost of the run so far, in millionths of a US dollar.")
    charges: list[ChargeSchema]
    totals: list[ChargeTotalSchema] = Field(description="By step.")
    next: UUID | None = Field(description="Pass it as `after` to get later entries. Null if there are none yet.")


class ChargeTotals(BaseModel):
    totals: list[ChargeTotalSchema] = Field(description="Highest cost first.")


class DeliverySchema(BaseModel):
    id: UUID = Field(description="Sent as `webhook-id` in every attempt.")
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
    status: int | None = Field(description="The HTTP status of the last attempt.")
    error: str | None


class DeliveryPage(BaseModel):
    deliveries: list[DeliverySchema]
    next: UUID | None = Field(description="Pass it as `before` to get the next page. Null on the last page.")


class DeliveryAttemptSchema(BaseModel):
    attempt: int
    at: datetime
    seconds: float | None
    status: int | None
    error: str | None
    answer: str | None = Field(description="The beginning of the response body.")


class DeliveryDetails(DeliverySchema):
    body: str | None = Field(description="The signed body. Null until the first attempt.")
    attempts: list[DeliveryAttemptSchema]


class RedriveRequest(RequestBody):
    endpoint: int | None = Field(None, ge=1, le=MAX_INT)
    url: Name | None = None
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None


class RedriveResult(BaseModel):
    deliveries: int = Field(description="The number of deliveries that will be sent again.")


class EndpointSchema(BaseModel):
    id: int
    tenant: str
    url: str
    created_at: datetime
    failures: int = Field(description="Consecutive failed attempts.")
    failing_since: datetime | None
    open_until: datetime | None = Field(
        description="The circuit breaker is open until this time; nothing is sent before."
    )
    disabled_at: datetime | None = Field(
        description="When the endpoint was disabled. Nothing is sent until it is enabled."
    )
    disabled_because: str | None
    due: int = Field(description="The number of pending deliveries.")
    dead: int = Field(description="The number of dead deliveries. They can be redriven once the endpoint is enabled.")
    events: list[str] = Field(description="The events of its subscription to all runs of the tenant.")


class SubscriptionRequest(RequestBody):
    url: Annotated[str, AfterValidator(_check_storable)] = Field(
        min_length=1,
        max_length=2_000,
        json_schema_extra={"format": "uri"},
        description="A public URL, preferably with https.",
    )
    events: list[Literal[EVENTS]] = Field(min_length=1, max_length=20)  # type: ignore[valid-type]
    tenant: Name | None = Field(
        None, description="Only runs of this tenant. Default: the tenant of the API key, or all tenants."
    )


class SubscriptionSchema(BaseModel):
    id: int = Field(description="The ID of the endpoint.")
    tenant: str = Field(description="`*` means all tenants.")
    url: str
    events: list[str]
    created_at: datetime


class CreatedSubscription(SubscriptionSchema):
    secret: str | None = Field(
        description="Signs all webhooks of this tenant to this host. Null if RETOMA_WEBHOOK_SECRET is used."
    )


class SubscriptionPage(BaseModel):
    webhooks: list[SubscriptionSchema]
    next: int | None = Field(description="Pass it as `before` to get the next page. Null on the last page.")


class EndpointPage(BaseModel):
    endpoints: list[EndpointSchema]
    next: int | None = Field(description="Pass it as `before` to get the next page. Null on the last page.")


class QueueSchema(BaseModel):
    queue: str
    ready: int
    running: int
    delayed: int
    oldest_seconds: float | None = Field(description="How long the next job has been ready.")
    workers: int = Field(description="The number of live workers that serve this queue.")


class QueueList(BaseModel):
    queues: list[QueueSchema]


class WorkerSchema(BaseModel):
    id: int
    name: str
    queues: list[str]
    concurrency: int
    started_at: datetime
    heartbeat_age_seconds: float


class WorkerList(BaseModel):
    workers: list[WorkerSchema]


class PipelineSchema(BaseModel):
    name: str
    input_schema: dict[str, Any] | None = Field(description="A JSON Schema. Null if the pipeline has no inputs.")
    steps: list[str]


class PipelineList(BaseModel):
    pipelines: list[PipelineSchema]


class Health(BaseModel):
    status: str


class Readiness(Health):
    loop_restarts: dict[str, int] = Field(
        description="The number of restarts of each background loop of this server after a failure."
    )


class ItemSchema(BaseModel):
    item: str
    position: int
    value: Any = Field(description="The value that the source step returned.")
    state: JobState
    step: str = Field(description="The current step of the item, or its last one.")
    attempt: int = Field(description="The highest attempt number among its steps.")
    code: str | None
    error: Any = Field(description="The last error.")
    error_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    output: Any = Field(description="The result of the last step.")
    author: str | None = Field(description="The person who entered the result, if any.")


class ItemPage(BaseModel):
    items: list[ItemSchema]
    next: int | None = Field(description="Pass it as `after` to get the next page. Null on the last page.")


class StuckRunSchema(BaseModel):
    run: UUID
    run_title: str | None
    pipeline: str
    tenant: str
    revision: int
    since: datetime
    cause: str
    data: dict[str, Any] = Field(description="Known details, such as step, item, worker, queue and a message.")
    resumes: int = Field(description="Automatic resumes since the run last made progress.")
    max_resumes: int


class StuckRunPage(BaseModel):
    stuck: list[StuckRunSchema]


class ReviewSchema(BaseModel):
    id: UUID
    run: UUID
    run_title: str | None
    tenant: str
    pipeline: str
    step: str
    item: str
    revision: int = Field(description="The revision under review. Pass it as `seen` in a decision.")
    planned: bool = Field(description="False if the step requested the review; `reason` says why.")
    state: ReviewState
    reason: Any
    opened_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    assignee: str | None
    claimed_by: str | None = Field(description="The person who is currently reviewing it.")
    decided_by: str | None
    via: str | None
    decided_at: datetime | None
    effective_at: datetime | None = Field(description="The decision can be undone until this time.")
    applied_at: datetime | None
    value: Any = Field(description="The edited result that was approved, or the submitted form.")
    notes: str | None
    back_to: str | None
    back_items: list[str]
    can_send_back_to: list[str] = Field(
        description="The steps that the work can be sent back to. The first one is the default."
    )
    times_sent_back: int = Field(description="How often this work was sent back in the run.")
    max_revisions: int | None


class ReviewPage(BaseModel):
    reviews: list[ReviewSchema]
    next: UUID | None = Field(description="Pass it as `after` to get the next page. Null on the last page.")


class SubjectSchema(BaseModel):
    step: str
    revision: int
    value: Any


class ReviewDetails(ReviewSchema):
    subjects: list[SubjectSchema] = Field(description="The results under review.")
    has_form: bool = Field(description="True if `value` is a form to fill in, false if it is the edited subject.")
    form: dict[str, Any] | None = Field(description="The JSON Schema of `value`. Null if this server does not know it.")
    feedback_form: dict[str, Any] | None = Field(
        description="The JSON Schema of `extra`. Null if feedback consists of `notes` only."
    )
    comments: list[Any] = Field(description="Comments on moments of a recording.")
    history: list[EventSchema] = Field(description="Review events of this step and item in this run, oldest first.")


class CommentRequest(RequestBody):
    text: Notes
    at: float | None = Field(
        None, ge=0, le=MAX_RECORDING_SECONDS, description="The start, in seconds from the beginning of the recording."
    )
    to: float | None = Field(
        None, ge=0, le=MAX_RECORDING_SECONDS, description="The end in seconds, if the comment is about a range."
    )


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
    current: ReviewSchema | None = Field(description="The review after the decision. Null if it failed; see `problem`.")
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


class StepRevisionSchema(BaseModel):
    revision: int
    state: JobState
    output: Any
    author: str | None = Field(description="The person who entered the result, if any.")
    reused_from: int | None = Field(description="The revision that this result was reused from.")
    feedback: Any = Field(description="The reviewer's feedback that caused this revision.")
    created_at: datetime
    ended_at: datetime | None


class StepRevisionList(BaseModel):
    revisions: list[StepRevisionSchema] = Field(description="Newest first.")


class RunEventData(BaseModel):
    run: UUID
    tenant: str
    pipeline: str
    state: RunState
    seq: int = Field(description="The sequence number of the event among those of this run to this URL.")
    error: dict[str, Any] | None = Field(None, description="The error of a failed run.")
    url: str | None = Field(None, description="The URL of the run, if RETOMA_PUBLIC_URL is set.")
    input: Any = Field(None, description="Omitted if the body would be too large.")
    results: dict[str, Any] | None = Field(None, description="Results by step. Omitted if the body would be too large.")
    review: dict[str, Any] | None = Field(None, description="The review, in `review.opened` events.")
    stuck: dict[str, Any] | None = Field(None, description="The cause, in `run.stuck` events.")
    omitted: list[str] = Field([], description="The fields omitted because the body would be too large.")


class RunEvent(BaseModel):
    """The body of a webhook about a run."""

    type: str = Field(description="The event type, such as `run.completed`.")
    timestamp: datetime = Field(description="The time of the event.")
    data: RunEventData
