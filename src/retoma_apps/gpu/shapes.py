"""What the routes answer, as the OpenAPI document describes it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from retoma_apps.gpu.parts import Video
from retoma_apps.gpu.states import Status
from retoma_apps.providers.gpu import Operation

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


def _as_sent(name: str) -> str:
    return name if name in ("id_roteiro", "video_url") else to_camel(name)


class Shape(BaseModel):
    model_config = ConfigDict(alias_generator=_as_sent)


class JobAccepted(Shape):
    job_id: str
    status: Status
    id_roteiro: int | None
    message: str
    estimated_time: str = Field(description="In words, such as `2-10 minutos`.")
    status_url: str
    created_at: Moment


class JobSummary(Shape):
    job_id: str
    status: Status
    operation: Operation
    id_roteiro: int | None
    created_at: Moment
    started_at: Moment | None = Field(description="When the first part got a worker.")
    completed_at: Moment | None


class JobPage(Shape):
    jobs: list[JobSummary]
    next: str | None = Field(description="For `before`; null if there are no more.")


class JobProgress(Shape):
    completed: int = Field(description="Images that have their videos; of other operations, videos.")
    total: int
    percentage: float


class FailedImage(Shape):
    id: str
    code: str
    message: str


class JobResult(Shape):
    code: int = Field(description="200; 207 if some images have no video.")
    message: str
    videos: list[Video] | None = None
    video_url: str | None = None
    failed: list[FailedImage] | None = None


class JobError(Shape):
    code: str = Field(description="`PROCESSING_ERROR`, `TIMEOUT` or `PARTIAL_FAILURE`.")
    message: str
    details: str | None = None


class JobDetails(JobSummary):
    progress: JobProgress | None
    estimated_completion: Moment | None
    webhook_url: str | None
    data: dict[str, Any] = Field(description="What was submitted.")
    runpod_job_ids: list[str]
    workers_reserved: int
    attempts: dict[str, int] = Field(description="By part.")
    waiting: list[str] = Field(description="Why what could run does not.")
    result: JobResult | None = Field(None, description="Once it has ended, and gave something.")
    error: JobError | None = Field(None, description="Once it has failed, wholly or in part.")


class JobCancelled(Shape):
    message: str
    job_id: str


class Execution(Shape):
    """From when the first part got a worker to the job's end."""

    start_time: Moment | None
    end_time: Moment | None
    duration_ms: int
    duration_seconds: int


class JobCallback(Shape):
    """What `webhook_url` is sent when a job has ended."""

    job_id: str
    id_roteiro: int | None
    status: Status
    operation: Operation
    result: JobResult | None = Field(None, description="If it gave something.")
    error: JobError | None = Field(None, description="If it has failed, wholly or in part.")
    execution: Execution
    timestamp: Moment
