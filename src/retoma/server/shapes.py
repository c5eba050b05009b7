"""What goes in and out, as the OpenAPI document describes it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Header
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from retoma.define.options import HIGHEST_PRIORITY
from retoma.define.webhook import EVENTS, MOST_RETRIES
from retoma.engine.reviews import LONGEST_NOTES, LONGEST_UNDO, MOST_COMMENTS
from retoma.engine.reviews import MOST_ITEMS as MOST_ITEMS_BACK
from retoma.states import DeliveryState, JobState, ReviewState, RunState

MOST_INPUTS = 10_000
MOST_DECISIONS = 200
LONGEST_RECORDING = 10**7  # seconds
LARGEST_PAGE = 500
LARGEST_NUMBER = 2**63 - 1
LARGEST_INT = 2**31 - 1


def _storable(given: str) -> str:
    if "\0" in given or any("\ud800" <= letter <= "\udfff" for letter in given):
        raise ValueError("it has a NUL or half a character")
    return given


Name = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]+$"), AfterValidator(_storable)]
ItemKey = Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$"), AfterValidator(_storable)]
Notes = Annotated[str, Field(max_length=LONGEST_NOTES, pattern=r"^[^\x00]*$"), AfterValidator(_storable)]
Limit = Annotated[int, Field(ge=1, le=LARGEST_PAGE, description="How many at most.")]
Before = Annotated[UUID | None, Field(description="`next` of the page before.")]


def idempotency_key(description: str) -> Any:
    """In a route: `key: Annotated[str | None, idempotency_key("...")] = None`."""
    return Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$",
        description=description,
    )


class Given(BaseModel):
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


class WebhookGiven(Given):
    url: Annotated[str, AfterValidator(_storable)] = Field(
        min_length=1,
        max_length=2_000,
        json_schema_extra={"format": "uri"},
        description="Public, and https if it can be.",
    )
    events: list[Literal[EVENTS]] = Field(["run.ended"], min_length=1, max_length=20)  # type: ignore[valid-type]
    profile: Literal["standard", "short"] = Field("standard", description="`short` stops after five tries.")
    retries: int | None = Field(None, ge=0, le=MOST_RETRIES, description="At most so many after the first try.")


class _StartOptions(Given):
    pipeline: Name
    tenant: Name | None = Field(None, description="Whose run it is. A key of one tenant need not say.")
    priority: int = Field(0, ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY, description="A level is worth ten minutes.")
    webhook: WebhookGiven | None = None


class StartGiven(_StartOptions):
    input: dict[str, Any] = Field({}, description="As the pipeline's schema says: GET /pipelines.")
    run_at: AwareDatetime | None = Field(None, description="Begin then, not now.")


class BulkGiven(_StartOptions):
    inputs: list[dict[str, Any]] = Field(min_length=1, max_length=MOST_INPUTS)


class Started(BaseModel):
    id: UUID
    created: bool = Field(description="False if the Idempotency-Key was used before: it is the same run.")


class StartedMany(BaseModel):
    runs: list[UUID] = Field(description="In the order of the inputs.")


class RunShape(BaseModel):
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
    runs: list[RunShape]
    next: UUID | None = Field(description="Give it as `before` for the next page. Null: this is the last.")


class StepShape(BaseModel):
    step: str
    each: bool = Field(description="Whether it has a job for each item.")
    queue: str
    jobs: dict[str, int] = Field(description="How many jobs are in which state.")
    ended: int
    total: int
    started_at: datetime | None
    ended_at: datetime | None


class WaitShape(BaseModel):
    step: str
    item: str
    jobs: int
    reason: str
    why: str = Field(description="The reason as a sentence.")
    until: datetime | None


class ErrorShape(BaseModel):
    model_config = ConfigDict(extra="allow")

    step: str
    item: str
    attempt: int | None = None
    code: str | None = None
    message: str | None = None
    retried: bool = Field(False, description="True: the job has not failed; a later attempt succeeded, or is to come.")


class ErrorCountsShape(BaseModel):
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


class RunDetails(RunShape):
    input: Any
    forked_from: UUID | None = Field(description="The run whose results it shares.")
    reviews: list[OpenReview] = Field(description="What people are asked, the oldest first: at most 100.")
    steps: list[StepShape]
    estimated_end_at: datetime | None = Field(
        description="If its items keep their pace. Null while nothing tells, while people are asked, and while stuck."
    )
    waits: list[WaitShape] = Field(description="Why what could run does not.")
    errors: list[ErrorShape] = Field(
        description="What the newest failure of each job said, those of failed jobs first: at most 100."
    )
    error_counts: ErrorCountsShape


class StateOfRun(BaseModel):
    id: UUID
    state: RunState = Field(description="`cancelling` while something still ends.")


class Resumed(StateOfRun):
    note: str | None = Field(None, description="What keeps it from going on now: that no live worker serves it.")


class EventShape(BaseModel):
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
    events: list[EventShape]
    next: int | None = Field(description="Give it as `after` for what comes later. Null: there is no more now.")


class PoolShape(BaseModel):
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
    trouble: str | None = Field(description="PROVIDER_DOWN or PROVIDER_REFUSES, while its provider has not succeeded.")


class PoolList(BaseModel):
    pools: list[PoolShape]


class PoolGiven(Given):
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


class ChargeShape(BaseModel):
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


class ChargeTotalShape(BaseModel):
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
    charges: list[ChargeShape]
    totals: list[ChargeTotalShape] = Field(description="By step.")
    next: UUID | None = Field(description="Give it as `after` for what comes later. Null: there is no more now.")


class ChargeTotals(BaseModel):
    totals: list[ChargeTotalShape] = Field(description="The most costly first.")


class DeliveryShape(BaseModel):
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
    deliveries: list[DeliveryShape]
    next: UUID | None = Field(description="Give it as `before` for the next page. Null: this is the last.")


class AttemptShape(BaseModel):
    attempt: int
    at: datetime
    seconds: float | None
    status: int | None
    error: str | None
    answer: str | None = Field(description="The beginning of what came back.")


class DeliveryDetails(DeliveryShape):
    body: str | None = Field(description="What is signed and sent. Null until the first attempt.")
    attempts: list[AttemptShape]


class RedriveGiven(Given):
    endpoint: int | None = Field(None, ge=1, le=LARGEST_INT)
    url: Name | None = None
    from_at: AwareDatetime | None = None
    to_at: AwareDatetime | None = None


class Redriven(BaseModel):
    deliveries: int = Field(description="How many will be sent again.")


class EndpointShape(BaseModel):
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


class SubscriptionGiven(Given):
    url: Annotated[str, AfterValidator(_storable)] = Field(
        min_length=1,
        max_length=2_000,
        json_schema_extra={"format": "uri"},
        description="Public, and https if it can be.",
    )
    events: list[Literal[EVENTS]] = Field(min_length=1, max_length=20)  # type: ignore[valid-type]
    tenant: Name | None = Field(
        None, description="Whose runs. A key of one tenant need not say; unset by another, the runs of all tenants."
    )


class SubscriptionShape(BaseModel):
    id: int = Field(description="That of its endpoint.")
    tenant: str = Field(description="`*` stands for all tenants.")
    url: str
    events: list[str]
    created_at: datetime


class SubscriptionMade(SubscriptionShape):
    secret: str | None = Field(
        description="Signs all webhooks of this tenant to this host. Null if RETOMA_WEBHOOK_SECRET signs them."
    )


class SubscriptionPage(BaseModel):
    webhooks: list[SubscriptionShape]
    next: int | None = Field(description="Give it as `before` for the next page. Null: this is the last.")


class EndpointPage(BaseModel):
    endpoints: list[EndpointShape]
    next: int | None = Field(description="Give it as `before` for the next page. Null: this is the last.")


class QueueShape(BaseModel):
    queue: str
    ready: int
    running: int
    delayed: int
    oldest_seconds: float | None = Field(description="How long the job that comes next has been ready.")
    workers: int = Field(description="How many live workers serve it.")


class QueueList(BaseModel):
    queues: list[QueueShape]


class WorkerShape(BaseModel):
    id: int
    name: str
    queues: list[str]
    concurrency: int
    started_at: datetime
    silent_seconds: float


class WorkerList(BaseModel):
    workers: list[WorkerShape]


class PipelineShape(BaseModel):
    name: str
    input_schema: dict[str, Any] | None = Field(description="JSON Schema. Null: it takes no input.")
    steps: list[str]


class PipelineList(BaseModel):
    pipelines: list[PipelineShape]


class Health(BaseModel):
    status: str


class Readiness(Health):
    loop_restarts: dict[str, int] = Field(
        description="How often each background loop of this server has failed and was started again."
    )


class ItemShape(BaseModel):
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
    items: list[ItemShape]
    next: int | None = Field(description="Give it as `after` for the next page. Null: there is none.")


class StuckShape(BaseModel):
    run: UUID
    pipeline: str
    tenant: str
    revision: int
    since: datetime
    cause: str
    data: dict[str, Any] = Field(description="What is known: step, item, worker or queue, the last item, a sentence.")
    resumes: int = Field(description="By itself, since it last progressed.")
    may_resume: int


class StuckPage(BaseModel):
    stuck: list[StuckShape]


class ReviewShape(BaseModel):
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
    may_go_back_to: list[str] = Field(description="The steps that it may be sent back to; the first if none is named.")
    sent_back: int = Field(description="How often this went back in its run.")
    most_sent_back: int | None


class ReviewPage(BaseModel):
    reviews: list[ReviewShape]
    next: UUID | None = Field(description="Give it as `after` for the next page. Null: this is the last.")


class SubjectShape(BaseModel):
    step: str
    revision: int
    value: Any


class ReviewDetails(ReviewShape):
    subjects: list[SubjectShape] = Field(description="The results that the person is asked about.")
    has_form: bool = Field(description="Whether `value` is a form to be filled in, and not the subject edited.")
    form: dict[str, Any] | None = Field(description="JSON Schema of `value`. Null: this server does not know it.")
    feedback_form: dict[str, Any] | None = Field(description="JSON Schema of `extra`. Null: there is only `notes`.")
    comments: list[Any] = Field(description="What was said about moments of a recording.")
    history: list[EventShape] = Field(description="Of this step and item in this run, in order.")


class CommentGiven(Given):
    text: Notes
    at: float | None = Field(None, ge=0, le=LONGEST_RECORDING, description="Seconds from the beginning.")
    to: float | None = Field(None, ge=0, le=LONGEST_RECORDING, description="The end, if it is about a range.")


class DecisionGiven(Given):
    action: Literal["approve", "send_back", "reject"]
    value: Any = Field(
        None, description="What is approved in place of the subject, or what the form asks for. Left out: the subject."
    )
    notes: Notes = Field("", description="To send back or reject, say why.")
    to: Name | None = Field(None, description="The step that the work goes back to.")
    items: list[ItemKey] | None = Field(None, max_length=MOST_ITEMS_BACK, description="What of it goes back.")
    comments: list[CommentGiven] = Field([], max_length=MOST_COMMENTS)
    extra: dict[str, Any] = Field({}, description="What `feedback_form` asks for, to send back.")
    seen: int | None = Field(None, ge=1, le=LARGEST_INT, description="The revision that was looked at; or `If-Match`.")
    undo_seconds: float = Field(
        0, ge=0, le=LONGEST_UNDO.total_seconds(), description="It takes effect after so long; until then it is undone."
    )


class DecisionOfMany(DecisionGiven):
    review: UUID


class DecisionsGiven(Given):
    decisions: list[DecisionOfMany] = Field(min_length=1, max_length=MOST_DECISIONS)


class Outcome(BaseModel):
    review: UUID
    now: ReviewShape | None = Field(description="As it stands. Null: it was not decided, and `problem` says why.")
    problem: dict[str, Any] | None = Field(description="What it would have been answered with alone: a `Problem`.")


class DecisionOutcomes(BaseModel):
    outcomes: list[Outcome] = Field(description="In the order of the decisions.")


class AssignGiven(Given):
    assignee: Name | None = Field(description="Null: nobody's.")


class StaleJob(BaseModel):
    step: str
    item: str


class StaleList(BaseModel):
    stale: list[StaleJob] = Field(description="Results that are made of something that is no longer current.")


class MadeShape(BaseModel):
    revision: int
    state: JobState
    output: Any
    author: str | None = Field(description="The person who gave it.")
    reused_from: int | None = Field(description="The revision whose result it kept.")
    feedback: Any = Field(description="What a person said who sent it back.")
    created_at: datetime
    ended_at: datetime | None


class MadeList(BaseModel):
    revisions: list[MadeShape] = Field(description="The newest first.")


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
