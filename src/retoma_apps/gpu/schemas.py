"""What the routes answer, as the OpenAPI document describes it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from retoma_apps.gpu.image_chunks import Video
from retoma_apps.gpu.states import Status
from retoma_apps.providers.gpu import Operation

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


def _json_name(name: str) -> str:
    return name if name in ("id_roteiro", "video_url") else to_camel(name)


class CamelCaseModel(BaseModel):
    model_config = ConfigDict(alias_generator=_json_name)


class JobAccepted(CamelCaseModel):
    job_id: str
    status: Status
    id_roteiro: int | None
    message: str
    estimated_time: str = Field(description="In words, such as `2-10 minutos`.")
    status_url: str
    created_at: Timestamp


class JobSummary(CamelCaseModel):
    job_id: str
    status: Status
    operation: Operation
    id_roteiro: int | None
    created_at: Timestamp
    started_at: Timestamp | None = Field(description="When the first part got a worker.")
    completed_at: Timestamp | None


class JobPage(CamelCaseModel):
    jobs: list[JobSummary]
    next: str | None = Field(description="For `before`; null if there are no more.")


class JobProgress(CamelCaseModel):
    completed: int = Field(description="Images that have their videos; of other operations, videos.")
    total: int
    percentage: float


class FailedImage(CamelCaseModel):
    id: str
    code: str
    message: str


class JobResult(CamelCaseModel):
    code: int = Field(description="200; 207 if some images have no video.")
    message: str
    videos: list[Video] | None = None
    video_url: str | None = None
    failed: list[FailedImage] | None = None


class JobError(CamelCaseModel):
    code: str = Field(description="`PROCESSING_ERROR`, `TIMEOUT` or `PARTIAL_FAILURE`.")
    message: str
    details: str | None = None


class JobDetails(JobSummary):
    progress: JobProgress | None
    estimated_completion: Timestamp | None
    webhook_url: str | None
    data: dict[str, Any] = Field(description="What was submitted.")
    runpod_job_ids: list[str]
    workers_reserved: int
    attempts: dict[str, int] = Field(description="By part.")
    waiting: list[str] = Field(description="Why what could run does not.")
    result: JobResult | None = Field(None, description="Once it has ended, and gave something.")
    error: JobError | None = Field(None, description="Once it has failed, wholly or in part.")


class JobCancelled(CamelCaseModel):
    message: str
    job_id: str


class Execution(CamelCaseModel):
    """From when the first part got a worker to the job's end."""

    start_time: Timestamp | None
    end_time: Timestamp | None
    duration_ms: int
    duration_seconds: int


class JobCallback(CamelCaseModel):
    """What `webhook_url` is sent when a job has ended."""

    job_id: str
    id_roteiro: int | None
    status: Status
    operation: Operation
    result: JobResult | None = Field(None, description="If it gave something.")
    error: JobError | None = Field(None, description="If it has failed, wholly or in part.")
    execution: Execution
    timestamp: Timestamp
