"""The requests that callers send."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from retoma.outgoing import mask_query_values
from retoma_apps.gpu.states import JOB_ID, Status
from retoma_apps.providers.gpu.render_requests import AddAudioFields, CaptionFields, Img2VidFields

LARGEST_ID = 2**53
_PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
_MEDIA = "https://media.example.com"


def _example(**fields: Any) -> ConfigDict:
    """Return the model's config, with an example for the OpenAPI document."""
    return ConfigDict(extra="ignore", json_schema_extra={"examples": [{"id_roteiro": 34, **fields}]})


# The sender takes the URL from the run's webhook. No step needs it, so the recorded input contains no token.
WebhookUrl = Annotated[
    str, Field(min_length=1, max_length=2048), PlainSerializer(mask_query_values, return_type=str, when_used="json")
]
ProjectId = Annotated[int, Field(ge=-LARGEST_ID, le=LARGEST_ID)]


class JobFilter(BaseModel):
    """Filters for the list of jobs. Unknown names are rejected, so a misspelt filter does not list all jobs."""

    model_config = ConfigDict(extra="forbid")

    status: Status | None = Field(None, description="Only jobs of this status.")
    id_roteiro: ProjectId | None = Field(None, description="Only jobs of this project.")
    before: Annotated[str, Field(pattern=JOB_ID)] | None = Field(None, description="`next` of the previous page.")
    limit: Annotated[int, Field(ge=1, le=100)] = 50


class Submission(BaseModel):
    """`path` is the caller's label. The server decides where outputs are stored."""

    model_config = ConfigDict(extra="ignore")

    id_roteiro: ProjectId | None = Field(None, description="The caller's project, returned wherever the job is shown.")
    webhook_url: WebhookUrl | None = Field(
        None,
        description="The URL for the callback. Without it, poll `GET /jobs/{jobId}`. "
        "Values in its query are shown as `***`.",
        json_schema_extra={"format": "uri"},
    )
    path: Annotated[str, Field(max_length=1024, pattern=_PRINTABLE)] = ""

    @property
    def media(self) -> dict[str, str]:
        """Return the URLs to download for this job, by field."""
        return {}

    @property
    def video_seconds(self) -> float:
        """Return the seconds of video to render, as far as the submission shows."""
        return 0.0

    def make_title(self) -> str:
        """Return the caller's project and label, or else the first file's name; the rest of a URL may hold tokens.

        Such as `34 · intro` or `34 · 1.jpg`.
        """
        first = next(iter(self.media.values()), "")
        name = self.path or unquote(urlsplit(first).path.rpartition("/")[2])
        return " · ".join(filter(None, ["" if self.id_roteiro is None else str(self.id_roteiro), name]))


class WithReceivedRequest(BaseModel):
    """Values that a run stores besides its parameters."""

    received: dict[str, Any] | None = Field(None, description="The original request, shown as `data`.")


class Img2VidJob(Img2VidFields, Submission):
    model_config = _example(
        images=[{"id": "1", "image_url": f"{_MEDIA}/1.jpg", "duracao": 5.32}], zoom_types=["zoomin"]
    )

    @property
    def media(self) -> dict[str, str]:
        return {f"images.{index}.image_url": image.image_url for index, image in enumerate(self.images)}

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
