"""What goes in and out, as the OpenAPI document describes it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Header
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from retoma.define.options import MAX_PRIORITY
from retoma.define.webhook import EVENTS, MAX_RETRIES
from retoma.engine.reviews import MAX_COMMENTS, MAX_NOTES_LENGTH, MAX_UNDO
from retoma.engine.reviews import MAX_ITEMS as MOST_ITEMS_BACK
from retoma.states import DeliveryState, JobState, ReviewState, RunState

MAX_INPUTS = 10_000
MAX_DECISIONS = 200
MAX_RECORDING_SECONDS = 10**7  # seconds
MAX_PAGE_SIZE = 500
MAX_BIGINT = 2**63 - 1
MAX_INT = 2**31 - 1


def _check_storable(value: str) -> str:
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("it has a NUL or half a character")
    return value


Name = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]+$"), AfterValidator(_check_storable)]
ItemKey = Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$"), AfterValidator(_check_storable)]
Notes = Annotated[str, Field(max_length=MAX_NOTES_LENGTH, pattern=r"^[^\x00]*$"), AfterValidator(_check_storable)]
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE, description="How many at most.")]
Before = Annotated[UUID | None, Field(description="`next` of the page before.")]


def idempotency_key_header(description: str) -> Any:
    """In a route: `key: Annotated[str | None, idempotency_key("...")] = None`."""
    return Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$",
        description=description,
    )


class RequestBody(BaseModel):
    """A body of a request. What is not known is an error, so that a misspelt name is not lost."""

    model_config = ConfigDict(extra="forbid")


class FieldError(BaseModel):
    field: str
    message: str


class Problem(BaseModel):
    """The body of an error, as RFC 9457 defines it. Some have further members, which their pages name."""

    type: str
    title: str
    status: int
    detail: str = Field(description="What happened, to what, and what to do.")
    code: str = Field(description="For programs; it stays the same.")
    errors: list[FieldError] = Field([], description="Which fields are wrong, if it is about fields.")


class WebhookRequest(RequestBody):
    url: Annotated[str, AfterValidator(_check_storable)] = Field(
        min_length=1,
        max_length=2_000,
        json_schema_extra={"format": "uri"},
        description="Public, and https if it can be.",
    )
    events: list[Literal[EVENTS]] = Field(["run.ended"], min_length=1, max_length=20)  # type: ignore[valid-type]
    schedule: Literal["standard", "short"] = Field("standard", description="`short` stops after five tries.")
    retries: int | None = Field(None, ge=0, le=MAX_RETRIES, description="At most so many after the first try.")


class _StartOptions(RequestBody):
    pipeline: Name
    tenant: Name | None = Field(None, description="Whose run it is. A key of one tenant need not say.")
    priority: int = Field(0, ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="A level is worth ten minutes.")
    webhook: WebhookRequest | None = None


class StartRequest(_StartOptions):
    input: dict[str, Any] = Field({}, description="As the pipeline's schema says: GET /pipelines.")
    run_at: AwareDatetime | None = Field(None, description="Begin then, not now.")


class BulkStartRequest(_StartOptions):
    inputs: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_INPUTS)


class StartedRun(BaseModel):
    id: UUID
    created: bool = Field(description="False if the Idempotency-Key was used before: it is the same run.")


class StartedRuns(BaseModel):
    runs: list[UUID] = Field(description="In the order of the inputs.")


class RunSchema(BaseModel):
    id: UUID
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
    next: UUID | None = Field(description="Give it as `before` for the next page. Null: this is the last.")


class StepSchema(BaseModel):
    step: str
    each: bool = Field(description="Whether it has a job for each item.")
    queue: str
    jobs: dict[str, int] = Field(description="How many jobs are in which state.")
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
    retried: bool = Field(False, description="True: the job has not failed; a later attempt succeeded, or is to come.")


class ErrorCountsSchema(BaseModel):
    failed: int = Field(description="Jobs that have failed.")
    recovered: int = Field(description="Jobs that had an error and have not failed.")
    retried_attempts: int = Field(description="Attempts that failed and were retried.")


class OpenReview(BaseModel):
    id: UUID
    step: str
    item: str
    planned: bool = Field(description="False: the step asked for help.")
    opened_at: datetime
    due_at: datetime | None
    assignee: str | None


class RunDetails(RunSchema):
    input: Any
    forked_from: UUID | None = Field(description="The run whose results it shares.")
    reviews: list[OpenReview] = Field(description="What people are asked, the oldest first: at most 100.")
    steps: list[StepSchema]
    estimated_end_at: datetime | None = Field(
        description="If its items keep their pace. Null while nothing tells, while people are asked, and while stuck."
    )
    waits: list[WaitSchema] = Field(description="Why what could run does not.")
    errors: list[ErrorSchema] = Field(
        description="What the newest failure of each job said, those of failed jobs first: at most 100."
    )
    error_counts: ErrorCountsSchema


class RunStateSchema(BaseModel):
    id: UUID
    state: RunState = Field(description="`cancelling` while something still ends.")


class ResumedRun(RunStateSchema):
    note: str | None = Field(None, description="What keeps it from going on now: that no live worker serves it.")


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
    next: int | None = Field(description="Give it as `after` for what comes later. Null: there is no more now.")


class PoolSchema(BaseModel):
    name: str
    capacity: int
    used: int
    waiting: int
    rate: float | None
    burst: int
    per_tenant: int | None = Field(description="How many slots one tenant may hold at a time.")
    paused_until: datetime | None
    failures: int = Field(description="Of its provider, in a row.")
    open_until: datetime | None = Field(description="Until then nothing begins; after it one job at a time.")
    trouble: str | None = Field(description="PROVIDER_DOWN or PROVIDER_REJECTED, while its provider has not succeeded.")


class PoolList(BaseModel):
    pools: list[PoolSchema]


class PoolRequest(RequestBody):
    """What is left out stays as it is."""

    capacity: int | None = Field(
        None, ge=0, le=1_000_000, description="Slots. Those who hold more than that keep them to their end."
    )
    rate: float | None = Field(
        None, ge=0, le=1_000_000, description="How many may begin in a second, 0.000001 or more; 0 is no limit."
    )
    burst: int | None = Field(None, ge=1, le=1_000_000, description="How many of them at once after a rest.")
    per_tenant: int | None = Field(
        None, ge=0, le=1_000_000, description="How many slots one tenant may hold at a time; 0 is no limit."
    )
    resume: bool = Field(False, description="End a pause that a provider asked for.")


class ChargeSchema(BaseModel):
    id: UUID
    step: str
    item: str
    revision: int
    attempt: int
    at: datetime
    provider: str
    what: str = Field(description="A model, a voice, a machine.")
    tokens_in: int
    tokens_out: int
    units: float
    micros: int | None = Field(description="Millionths of a US dollar. Null: it has no price.")
    price: int | None = Field(description="The version of its price. Null: the provider told the sum, or it has none.")


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
    micros: int = Field(description="Millionths of a US dollar.")
    unpriced: int = Field(description="How many have no price, and are not in the sum.")


class ChargePage(BaseModel):
    micros: int = Field(description="What the run has cost so far, in millionths of a US dollar.")
    charges: list[ChargeSchema]
    totals: list[ChargeTotalSchema] = Field(description="By step.")
    next: UUID | None = Field(description="Give it as `after` for what comes later. Null: there is no more now.")


class ChargeTotals(BaseModel):
    totals: list[ChargeTotalSchema] = Field(description="The most costly first.")


class DeliverySchema(BaseModel):
    id: UUID = Field(description="The `webhook-id` of every attempt.")
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
    status: int | None = Field(description="What the last attempt was answered with.")
    error: str | None


class DeliveryPage(BaseModel):
    deliveries: list[DeliverySchema]
    next: UUID | None = Field(description="Give it as `before` for the next page. Null: this is the last.")


class DeliveryAttemptSchema(BaseModel):
    attempt: int
    at: datetime
    seconds: float | None
    status: int | None
    error: str | None
    answer: str | None = Field(description="The beginning of what came back.")


class DeliveryDetails(DeliverySchema):
    body: str | None = Field(description="What is signed and sent. Null until the first attempt.")
    attempts: list[DeliveryAttemptSchema]


class RedriveRequest(RequestBody):
    endpoint: int | None = Field(None, ge=1, le=MAX_INT)
    url: Name | None = None
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None


class RedriveResult(BaseModel):
    deliveries: int = Field(description="How many will be sent again.")


class EndpointSchema(BaseModel):
    id: int
    tenant: str
    url: str
    created_at: datetime
    failures: int = Field(description="In a row.")
    failing_since: datetime | None
    open_until: datetime | None = Field(description="Until then nothing is sent.")
    disabled_at: datetime | None = Field(description="Since then nothing is sent, until it is enabled.")
    disabled_because: str | None
    due: int = Field(description="How many webhooks are still to be sent to it.")
    dead: int = Field(description="How many were given up, and can be sent again once it is not disabled.")
    events: list[str] = Field(description="What it has subscribed to, of all runs of its tenant.")


class SubscriptionRequest(RequestBody):
    url: Annotated[str, AfterValidator(_check_storable)] = Field(
        min_length=1,
        max_length=2_000,
        json_schema_extra={"format": "uri"},
        description="Public, and https if it can be.",
    )
    events: list[Literal[EVENTS]] = Field(min_length=1, max_length=20)  # type: ignore[valid-type]
    tenant: Name | None = Field(
        None, description="Whose runs. A key of one tenant need not say; unset by another, the runs of all tenants."
    )


class SubscriptionSchema(BaseModel):
    id: int = Field(description="That of its endpoint.")
    tenant: str = Field(description="`*` stands for all tenants.")
    url: str
    events: list[str]
    created_at: datetime


class CreatedSubscription(SubscriptionSchema):
    secret: str | None = Field(
        description="Signs all webhooks of this tenant to this host. Null if RETOMA_WEBHOOK_SECRET signs them."
    )


class SubscriptionPage(BaseModel):
    webhooks: list[SubscriptionSchema]
    next: int | None = Field(description="Give it as `before` for the next page. Null: this is the last.")


class EndpointPage(BaseModel):
    endpoints: list[EndpointSchema]
    next: int | None = Field(description="Give it as `before` for the next page. Null: this is the last.")


class QueueSchema(BaseModel):
    queue: str
    ready: int
    running: int
    delayed: int
    oldest_seconds: float | None = Field(description="How long the job that comes next has been ready.")
    workers: int = Field(description="How many live workers serve it.")


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
    input_schema: dict[str, Any] | None = Field(description="JSON Schema. Null: it takes no input.")
    steps: list[str]


class PipelineList(BaseModel):
    pipelines: list[PipelineSchema]


class Health(BaseModel):
    status: str


class Readiness(Health):
    loop_restarts: dict[str, int] = Field(
        description="How often each background loop of this server has failed and was started again."
    )


class ItemSchema(BaseModel):
    item: str
    position: int
    value: Any = Field(description="What the source gave.")
    state: JobState
    step: str = Field(description="Where it stands, or ended.")
    attempt: int = Field(description="Of the step that took the most.")
    code: str | None
    error: Any = Field(description="What the last failure or retry said.")
    error_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    output: Any = Field(description="Of the last step.")
    author: str | None = Field(description="The person who gave it.")


class ItemPage(BaseModel):
    items: list[ItemSchema]
    next: int | None = Field(description="Give it as `after` for the next page. Null: there is none.")


class StuckRunSchema(BaseModel):
    run: UUID
    pipeline: str
    tenant: str
    revision: int
    since: datetime
    cause: str
    data: dict[str, Any] = Field(description="What is known: step, item, worker or queue, the last item, a sentence.")
    resumes: int = Field(description="By itself, since it last progressed.")
    max_resumes: int


class StuckRunPage(BaseModel):
    stuck: list[StuckRunSchema]


class ReviewSchema(BaseModel):
    id: UUID
    run: UUID
    tenant: str
    pipeline: str
    step: str
    item: str
    revision: int = Field(description="Of what is reviewed: say with a decision which one was `seen`.")
    planned: bool = Field(description="False: the step asked for help, and `reason` says why.")
    state: ReviewState
    reason: Any
    opened_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    assignee: str | None
    claimed_by: str | None = Field(description="Who looks at it just now.")
    decided_by: str | None
    via: str | None
    decided_at: datetime | None
    effective_at: datetime | None = Field(description="Until then the decision can be undone.")
    applied_at: datetime | None
    value: Any = Field(description="What was approved in place of the subject, or what the form was filled in with.")
    notes: str | None
    back_to: str | None
    back_items: list[str]
    can_send_back_to: list[str] = Field(
        description="The steps that it may be sent back to; the first if none is named."
    )
    times_sent_back: int = Field(description="How often this went back in its run.")
    max_revisions: int | None


class ReviewPage(BaseModel):
    reviews: list[ReviewSchema]
    next: UUID | None = Field(description="Give it as `after` for the next page. Null: this is the last.")


class SubjectSchema(BaseModel):
    step: str
    revision: int
    value: Any


class ReviewDetails(ReviewSchema):
    subjects: list[SubjectSchema] = Field(description="The results that the person is asked about.")
    has_form: bool = Field(description="Whether `value` is a form to be filled in, and not the subject edited.")
    form: dict[str, Any] | None = Field(description="JSON Schema of `value`. Null: this server does not know it.")
    feedback_form: dict[str, Any] | None = Field(description="JSON Schema of `extra`. Null: there is only `notes`.")
    comments: list[Any] = Field(description="What was said about moments of a recording.")
    history: list[EventSchema] = Field(description="Of this step and item in this run, in order.")


class CommentRequest(RequestBody):
    text: Notes
    at: float | None = Field(None, ge=0, le=MAX_RECORDING_SECONDS, description="Seconds from the beginning.")
    to: float | None = Field(None, ge=0, le=MAX_RECORDING_SECONDS, description="The end, if it is about a range.")


class DecisionRequest(RequestBody):
    action: Literal["approve", "send_back", "reject"]
    value: Any = Field(
        None, description="What is approved in place of the subject, or what the form asks for. Left out: the subject."
    )
    notes: Notes = Field("", description="To send back or reject, say why.")
    to: Name | None = Field(None, description="The step that the work goes back to.")
    items: list[ItemKey] | None = Field(None, max_length=MOST_ITEMS_BACK, description="What of it goes back.")
    comments: list[CommentRequest] = Field([], max_length=MAX_COMMENTS)
    extra: dict[str, Any] = Field({}, description="What `feedback_form` asks for, to send back.")
    seen: int | None = Field(None, ge=1, le=MAX_INT, description="The revision that was looked at; or `If-Match`.")
    undo_seconds: float = Field(
        0, ge=0, le=MAX_UNDO.total_seconds(), description="It takes effect after so long; until then it is undone."
    )


class BulkDecision(DecisionRequest):
    review: UUID


class BulkDecisionRequest(RequestBody):
    decisions: list[BulkDecision] = Field(min_length=1, max_length=MAX_DECISIONS)


class DecisionOutcome(BaseModel):
    review: UUID
    current: ReviewSchema | None = Field(description="As it stands. Null: it was not decided, and `problem` says why.")
    problem: dict[str, Any] | None = Field(description="What it would have been answered with alone: a `Problem`.")


class DecisionOutcomes(BaseModel):
    outcomes: list[DecisionOutcome] = Field(description="In the order of the decisions.")


class AssignRequest(RequestBody):
    assignee: Name | None = Field(description="Null: nobody's.")


class StaleJob(BaseModel):
    step: str
    item: str


class StaleList(BaseModel):
    stale: list[StaleJob] = Field(description="Results that are made of something that is no longer current.")


class StepRevisionSchema(BaseModel):
    revision: int
    state: JobState
    output: Any
    author: str | None = Field(description="The person who gave it.")
    reused_from: int | None = Field(description="The revision whose result it kept.")
    feedback: Any = Field(description="What a person said who sent it back.")
    created_at: datetime
    ended_at: datetime | None


class StepRevisionList(BaseModel):
    revisions: list[StepRevisionSchema] = Field(description="The newest first.")


class RunEventData(BaseModel):
    run: UUID
    tenant: str
    pipeline: str
    state: RunState
    seq: int = Field(description="Counts the events of a run that are sent to one URL.")
    error: dict[str, Any] | None = Field(None, description="Why a run failed.")
    url: str | None = Field(None, description="The run, if the server has been told its public address.")
    input: Any = Field(None, description="Left out if the body would be too large.")
    results: dict[str, Any] | None = Field(None, description="By step. Left out if the body would be too large.")
    review: dict[str, Any] | None = Field(None, description="Of `review.opened`: what a person is asked.")
    stuck: dict[str, Any] | None = Field(None, description="Of `run.stuck`: the cause.")
    omitted: list[str] = Field([], description="What was left out because the body would be too large.")


class RunEvent(BaseModel):
    """What is sent when something happens to a run."""

    type: str = Field(description="The name of the event, such as `run.completed`.")
    timestamp: datetime = Field(description="When it happened.")
    data: RunEventData
