"""What callers submit."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from retoma_apps.providers.gpu import DEFAULT_ZOOMS, Image, Style, Zoom, parse_srt
from retoma_apps.providers.gpu.orders import Picture, Subtitles, Url

MOST_IMAGES = 1000
LARGEST_ID = 2**53
_PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
_MEDIA = "https://media.example.com"


def _example(**fields: Any) -> ConfigDict:
    """Shown in the OpenAPI document."""
    return ConfigDict(extra="ignore", json_schema_extra={"examples": [{"id_roteiro": 34, **fields}]})


class Submission(BaseModel):
    """`path` is the caller's label. Outputs are stored where the server says."""

    model_config = ConfigDict(extra="ignore")

    id_roteiro: Annotated[int, Field(ge=-LARGEST_ID, le=LARGEST_ID)] | None = Field(
        None, description="The caller's project, given back wherever the job is shown."
    )
    webhook_url: Annotated[str, Field(min_length=1, max_length=2048)] | None = Field(
        None,
        description="Where the callback goes. Unset: there is none, and `GET /jobs/{jobId}` tells.",
        json_schema_extra={"format": "uri"},
    )
    path: Annotated[str, Field(max_length=1024, pattern=_PRINTABLE)] = ""

    @property
    def media(self) -> list[str]:
        """The URLs that are fetched for this job."""
        return []

    @property
    def video_seconds(self) -> float:
        """How much video is made, as far as the submission tells."""
        return 0.0


class Img2VidJob(Submission):
    model_config = _example(
        images=[{"id": "1", "image_url": f"{_MEDIA}/1.jpg", "duracao": 5.32}], zoom_types=["zoomin"]
    )

    images: Annotated[list[Image], Field(min_length=1, max_length=MOST_IMAGES)]
    zoom_types: Annotated[list[Zoom], Field(max_length=100)] = Field(
        default_factory=lambda: list(DEFAULT_ZOOMS), description="Taken in turn by the images."
    )
    picture: Picture = Picture()

    @field_validator("images")
    @classmethod
    def _ids_name_one_image_each(cls, images: list[Image]) -> list[Image]:
        seen: set[str] = set()
        for image in images:
            if not image.id.isprintable():
                raise ValueError(f"the id {image.id!r} has characters that cannot be shown")
            if image.id in seen:
                raise ValueError(f"two images have the id {image.id!r}")
            seen.add(image.id)
        return images

    @property
    def media(self) -> list[str]:
        return [image.image_url for image in self.images]

    @property
    def video_seconds(self) -> float:
        return sum(image.duracao for image in self.images)


class CaptionJob(Submission):
    model_config = _example(video_url=f"{_MEDIA}/film.mp4", text="Olá!")

    video_url: Url
    subtitles: Subtitles | None = Field(None, description="SRT, the URL of such a file, or segments.")
    text: Annotated[str, Field(min_length=1, max_length=2000)] | None = Field(
        None, description="One text that stays for the whole video."
    )
    style: Style = Style()

    @field_validator("subtitles", "text", mode="before")
    @classmethod
    def _empty_is_not_given(cls, given: object) -> object:
        return None if given == "" else given

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.subtitles is None) == (self.text is None):
            raise ValueError("give either `subtitles` or `text`")
        if isinstance(self.subtitles, str) and not _is_url(self.subtitles):
            parse_srt(self.subtitles)
        return self

    @property
    def media(self) -> list[str]:
        given = self.subtitles
        return [self.video_url, given] if isinstance(given, str) and _is_url(given) else [self.video_url]


class AddAudioJob(Submission):
    model_config = _example(video_url=f"{_MEDIA}/film.mp4", audio_url=f"{_MEDIA}/trilha.mp3", volume=0.4)

    video_url: Url
    audio_url: Url
    volume: Annotated[float, Field(ge=0, le=10, description="Of the added audio; 1 leaves it as it is.")] = 1.0

    @property
    def media(self) -> list[str]:
        return [self.video_url, self.audio_url]


def _is_url(given: str) -> bool:
    return given.startswith(("http://", "https://")) and not any(map(str.isspace, given))
