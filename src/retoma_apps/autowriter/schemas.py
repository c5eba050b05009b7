"""The requests and responses of the routes, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from retoma_apps.autowriter.models import ArticleRequest, Blog
from retoma_apps.autowriter.operations.articles import Group
from retoma_apps.autowriter.operations.decisions import DecisionAction
from retoma_apps.autowriter.states import ArticleState

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class JobRequest(ArticleRequest):
    """An article, and whether an existing one is to be written again."""

    regenerate: bool = Field(False, description="Write a finished article again, as its next revision.")
    pipeline_version: str = Field(
        "", max_length=100, description="Accepted and ignored: it identifies no article and changes none."
    )

    @property
    def article(self) -> ArticleRequest:
        return ArticleRequest.model_validate(self.model_dump(include=set(ArticleRequest.model_fields)))


class JobRerunRequest(BaseModel):
    """Exactly one of `group`, `step` and `from_step`."""

    model_config = ConfigDict(extra="forbid")

    group: Group | None = Field(None, description="`images`, `seo` or `body`.")
    step: str | None = Field(None, max_length=100, description="One step.")
    from_step: str | None = Field(None, max_length=100, description="A step and everything that depends on it.")
    downstream: bool = Field(True, description="False: dependents do not rerun and become stale.")


class JobDecisionRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    action: DecisionAction
    notes: str = Field("", max_length=20_000)
    step: str | None = Field(None, max_length=100, description="The step to rerun; see `review.can_rerun`.")
    seen: int | None = Field(None, ge=1, description="The `revision` of the review that the person saw.")


class SuccessfulAttempt(BaseModel):
    item: str | None = Field(description="The type of the image, for images.")
    revision: int
    attempt: int | None
    at: Timestamp
    provider: str | None = Field(description="The provider that it used, if the step needs one.")


class FailedAttempt(SuccessfulAttempt):
    code: str
    message: str | None
    next_provider: str | None = Field(description="The provider to which the job moved on, if it did.")


class StepDetails(BaseModel):
    step: str
    jobs: dict[str, int] = Field(description="The number of jobs by state; one, except for images.")
    start_time: Timestamp | None
    end_time: Timestamp | None
    seconds: float | None = Field(description="From its first attempt to its end, with the time between retries.")
    stale: bool = Field(description="Whether its inputs have changed since it ran.")
    providers: list[str] = Field(description="The providers that it has used, as charges name them.")
    models: list[str] = Field(description="The models, or other resources, of these providers that it has used.")
    failed_attempts: list[FailedAttempt] = Field(description="In order, of all revisions.")
    successful_attempts: list[SuccessfulAttempt] = Field(description="In order, of all revisions.")


class ErrorDetails(BaseModel):
    step: str
    code: str
    message: str
    error_class: str | None
    retried: bool | None = Field(description="Whether it is retried without a person.")
    next_action: str | None
    actor: str | None = Field(description="Who acts: nobody, caller, operator, editor or developer.")


class JobReview(BaseModel):
    id: str
    step: str
    revision: int
    can_rerun: list[str]


class Ended(BaseModel):
    by: str
    reason: str


class Artifact(BaseModel):
    file: str
    name: str
    size: int
    media_type: str


class WordPressEvent(BaseModel):
    sequence: int
    kind: str = Field(description="`media_ok`, `media_failed`, `seo_applied` or `done`.")
    revision: int
    at: Timestamp
    detail: dict[str, Any]


class JobSummary(BaseModel):
    job_id: str
    idempotency_key: str
    blog_id: str
    theme: str
    language: str
    word_count: int
    state: ArticleState
    step: str | None = Field(description="The furthest checkpoint that has started.")
    revision: int
    pipeline_version: str | None = Field(description="Of the code that wrote the current revision.")
    post_id: int | None
    edit_url: str | None
    created_at: Timestamp
    end_time: Timestamp | None


class JobDetails(JobSummary):
    request: dict[str, Any]
    start_time: Timestamp | None
    steps: list[StepDetails]
    outputs: dict[str, Any] = Field(description="The results so far, by step.")
    providers: list[str]
    tokens_in: int
    tokens_out: int
    cost_micros: int = Field(description="In millionths of a US dollar, with failed attempts.")
    artifacts: list[Artifact]
    events: list[WordPressEvent] = Field(description="What WordPress reported about the draft, in order.")
    review: JobReview | None
    error: ErrorDetails | None
    ended: Ended | None = Field(description="Who cancelled or rejected it, and why.")


class JobPage(BaseModel):
    jobs: list[JobSummary]
    next: str | None = Field(description="The value for `before`; null on the last page.")


class RerunStarted(BaseModel):
    job_id: str
    revision: int
    jobs: int = Field(description="The number of jobs that run again.")


class ImportLineError(BaseModel):
    line: int
    code: str
    message: str


class ImportPreview(BaseModel):
    valid: int
    articles: list[dict[str, Any]] = Field(description="The valid lines, with their numbers.")
    errors: list[ImportLineError]


class ImportDetails(BaseModel):
    import_id: str
    state: str
    lines: dict[str, int] = Field(description="The number of lines by state.")
    needs_review: int = Field(
        description="How many of the articles that it started wait for a decision. Their lines count as running."
    )
    cost_micros: int = Field(description="Millionths of a US dollar, of the articles that it started.")
    skipped_lines: list[int]
    created_at: Timestamp
    end_time: Timestamp | None


class BlogDetails(Blog):
    blog_id: str


class BlogList(BaseModel):
    blogs: list[BlogDetails]


class PeriodMetrics(BaseModel):
    period: str
    ended: int
    jobs_per_hour: float
    failure_rate: float | None
    retry_rate: float | None
    mean_cost: float | None = Field(description="In millionths of a US dollar.")


class MetricsList(BaseModel):
    metrics: list[PeriodMetrics]
