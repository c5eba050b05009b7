"""The responses of the routes, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from retoma_apps.gpu.states import Status
from retoma_apps.gpu.steps.image_chunks import Video
from retoma_apps.providers.gpu import Operation

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class CamelCaseModel(BaseModel):
    model_config = ConfigDict(
        alias_generator=lambda name: name if name in ("id_roteiro", "video_url") else to_camel(name)
    )


class JobAccepted(CamelCaseModel):
    job_id: str
    status: Status
    id_roteiro: int | None
    message: str
    estimated_time: str = Field(description="As text, such as `2-10 minutos`.")
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
    next: str | None = Field(description="The value for `before`; null on the last page.")


class JobProgress(CamelCaseModel):
    completed: int = Field(description="Finished images; for other operations, finished videos.")
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
    data: dict[str, Any] = Field(description="The submitted request.")
    runpod_job_ids: list[str]
    workers_reserved: int
    attempts: dict[str, int] = Field(description="Attempts by part.")
    waiting: list[str] = Field(description="Why jobs that could run are waiting.")
    result: JobResult | None = Field(None, description="Set once the job has ended with any video.")
    error: JobError | None = Field(None, description="Set once the job has failed, wholly or in part.")


class JobCancelled(CamelCaseModel):
    message: str
    job_id: str


class Execution(CamelCaseModel):
    """From the start of the first part to the end of the job."""

    start_time: Timestamp | None
    end_time: Timestamp | None
    duration_ms: int
    duration_seconds: int


class JobCallback(CamelCaseModel):
    """The body sent to `webhook_url` when a job has ended."""

    job_id: str
    id_roteiro: int | None
    status: Status
    operation: Operation
    result: JobResult | None = Field(None, description="Set if there is any video.")
    error: JobError | None = Field(None, description="Set if the job failed, wholly or in part.")
    execution: Execution
    timestamp: Timestamp
