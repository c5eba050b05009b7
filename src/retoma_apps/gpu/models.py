"""What callers submit and ask for."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from retoma.outgoing import mask_query_values
from retoma_apps.gpu.states import JOB_ID, Status
from retoma_apps.providers.gpu.render_requests import AddAudioFields, CaptionFields, Img2VidFields

LARGEST_ID = 2**53
_PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
_MEDIA = "https://media.example.com"


def _example(**fields: Any) -> ConfigDict:
    """Shown in the OpenAPI document."""
    return ConfigDict(extra="ignore", json_schema_extra={"examples": [{"id_roteiro": 34, **fields}]})


# The sender has the URL from the run's webhook. No step needs it, so what is recorded as the input holds no token.
WebhookUrl = Annotated[
    str, Field(min_length=1, max_length=2048), PlainSerializer(mask_query_values, return_type=str, when_used="json")
]
ProjectId = Annotated[int, Field(ge=-LARGEST_ID, le=LARGEST_ID)]


class JobFilter(BaseModel):
    """Which jobs to list. What is not known is refused, so that a misspelt name does not list all."""

    model_config = ConfigDict(extra="forbid")

    status: Status | None = Field(None, description="Only jobs of this status.")
    id_roteiro: ProjectId | None = Field(None, description="Only jobs of this project.")
    before: Annotated[str, Field(pattern=JOB_ID)] | None = Field(None, description="`next` of the page before.")
    limit: Annotated[int, Field(ge=1, le=100)] = 50


class Submission(BaseModel):
    """`path` is the caller's label. Outputs are stored where the server says."""

    model_config = ConfigDict(extra="ignore")

    id_roteiro: ProjectId | None = Field(
        None, description="The caller's project, given back wherever the job is shown."
    )
    webhook_url: WebhookUrl | None = Field(
        None,
        description="Where the callback goes. Unset: there is none, and `GET /jobs/{jobId}` tells. "
        "Values in its query are shown as `***`.",
        json_schema_extra={"format": "uri"},
    )
    path: Annotated[str, Field(max_length=1024, pattern=_PRINTABLE)] = ""

    @property
    def media(self) -> dict[str, str]:
        """The URLs that are fetched for this job, by where they stand."""
        return {}

    @property
    def video_seconds(self) -> float:
        """How much video is made, as far as the submission tells."""
        return 0.0


class WithReceivedRequest(BaseModel):
    """What a run keeps beside what it works with."""

    received: dict[str, Any] | None = Field(None, description="The request as it came, shown as `data`.")


class Img2VidJob(Img2VidFields, Submission):
    model_config = _example(
        images=[{"id": "1", "image_url": f"{_MEDIA}/1.jpg", "duracao": 5.32}], zoom_types=["zoomin"]
    )

    @property
    def media(self) -> dict[str, str]:
        return {f"images.{place}.image_url": image.image_url for place, image in enumerate(self.images)}

    @property
    def video_seconds(self) -> float:
        return sum(image.duracao for image in self.images)


class CaptionJob(CaptionFields, Submission):
    model_config = _example(video_url=f"{_MEDIA}/film.mp4", text="Olá!")

    @property
    def media(self) -> dict[str, str]:
        subtitles = {"subtitles": self.subtitles_url} if self.subtitles_url else {}
        return {"video_url": self.video_url, **subtitles}


class AddAudioJob(AddAudioFields, Submission):
    model_config = _example(video_url=f"{_MEDIA}/film.mp4", audio_url=f"{_MEDIA}/trilha.mp3", volume=0.4)

    @property
    def media(self) -> dict[str, str]:
        return {"video_url": self.video_url, "audio_url": self.audio_url}


class Img2VidRun(WithReceivedRequest, Img2VidJob): ...


class CaptionRun(WithReceivedRequest, CaptionJob): ...


class AddAudioRun(WithReceivedRequest, AddAudioJob): ...
