"""The request of each operation, validated before any work begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from retoma import GiveUp
from retoma.files import PREFIX
from retoma_apps.providers.captions import MAX_SECONDS, MOST_SEGMENTS, Segment, Style, parse_srt
from retoma_apps.providers.gpu.port import Operation
from retoma_apps.providers.gpu.zooms import DEFAULT_ZOOMS, Zoom

Url = Annotated[str, Field(pattern=r"^https?://", max_length=2048)]
Prefix = Annotated[str, Field(pattern=PREFIX.pattern, max_length=200)]
LONGEST_SUBTITLES = 2_000_000
MOST_IMAGES = 1000
Subtitles = Annotated[
    Annotated[list[Segment], Field(max_length=MOST_SEGMENTS), Tag("segments")]
    | Annotated[str, Field(max_length=LONGEST_SUBTITLES), Tag("srt")],
    Discriminator(lambda value: "srt" if isinstance(value, str) else "segments"),
]
"""SRT, the URL of an SRT file, or segments. Told apart first, so an error concerns the kind that was sent."""


def filename(label: str) -> str:
    """Return `video_1.mp4` for the label `1`. A label that would be unsafe in a path is replaced with a dot and its
    digest, which no other label has."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", label):
        return f"video_{label}.mp4"
    return f"video.{sha256(label.encode(errors='surrogatepass')).hexdigest()[:32]}.mp4"


class Image(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    id: Annotated[str, Field(min_length=1, max_length=200)]
    image_url: Url
    duracao: Annotated[float, Field(gt=0, le=600, description="Duration of the clip in seconds.")]
    zoom: Zoom | None = Field(None, description="Default: the next of the request's zoom types.")

    @field_validator("id", mode="before")
    @classmethod
    def _number_to_text(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def resolve_zooms(images: Sequence[Image], zoom_types: Sequence[Zoom]) -> list[Zoom]:
    """Return each image's zoom: its own, or the next of `zoom_types` in turn."""
    turns = zoom_types or DEFAULT_ZOOMS
    return [image.zoom or turns[position % len(turns)] for position, image in enumerate(images)]


class VideoFormat(BaseModel):
    model_config = ConfigDict(frozen=True)

    width: Annotated[int, Field(ge=16, le=7680, multiple_of=2)] = 1920
    height: Annotated[int, Field(ge=16, le=4320, multiple_of=2)] = 1080
    fps: Annotated[int, Field(ge=1, le=60)] = 30


class Img2VidFields(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    images: Annotated[list[Image], Field(min_length=1, max_length=MOST_IMAGES)]
    zoom_types: Annotated[list[Zoom], Field(max_length=100)] = Field(
        default_factory=lambda: list(DEFAULT_ZOOMS), description="Assigned to the images in turn."
    )
    picture: VideoFormat = VideoFormat()

    @field_validator("images")
    @classmethod
    def _check_ids(cls, images: list[Image]) -> list[Image]:
        seen: set[str] = set()
        for image in images:
            if not image.id.isprintable():
                raise ValueError(f"the id {image.id!r} has unprintable characters")
            if image.id in seen:
                raise ValueError(f"two images have the id {image.id!r}")
            seen.add(image.id)
        return images


class CaptionFields(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    video_url: Url
    subtitles: Subtitles | None = Field(None, description="SRT, the URL of an SRT file, or segments.")
    text: Annotated[str, Field(min_length=1, max_length=2000)] | None = Field(
        None, description="One text for the whole video."
    )
    style: Style = Style()

    @field_validator("subtitles", "text", mode="before")
    @classmethod
    def _empty_to_none(cls, value: object) -> object:
        return None if value == "" else value

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        if (self.subtitles is None) == (self.text is None):
            raise ValueError("send either `subtitles` or `text`")
        if self.subtitles_url is None and not any(segment.text.strip() for segment in self.segments()):
            raise ValueError("there is nothing to show: send `subtitles` or a `text` with words in it")
        return self

    @property
    def subtitles_url(self) -> str | None:
        value = self.subtitles
        return value if isinstance(value, str) and re.fullmatch(r"https?://\S+", value) else None

    def segments(self) -> list[Segment]:
        """Return the segments, unless they must be downloaded from `subtitles_url`."""
        if self.text is not None:
            return [Segment(start=0, end=MAX_SECONDS, text=self.text)]
        return self.subtitles if isinstance(self.subtitles, list) else parse_srt(self.subtitles or "")


class AddAudioFields(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    video_url: Url
    audio_url: Url
    volume: Annotated[float, Field(ge=0, le=10, description="Volume of the added audio; 1 leaves it unchanged.")] = 1.0


class RenderRequest(BaseModel):
    """The fields of the caller, and `prefix`, the location of the outputs, which only the server sets."""

    prefix: Prefix


class Img2Vid(Img2VidFields, RenderRequest): ...


class Caption(CaptionFields, RenderRequest): ...


class AddAudio(AddAudioFields, RenderRequest): ...


REQUEST_MODELS: dict[Operation, type[Img2Vid | Caption | AddAudio]] = {
    "img2vid": Img2Vid,
    "caption": Caption,
    "addaudio": AddAudio,
}


def parse_render_request(operation: Operation, values: dict[str, Any]) -> Img2Vid | Caption | AddAudio:
    """Raise GiveUp if the input is invalid: it would be rejected again."""
    try:
        return REQUEST_MODELS[operation].model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise GiveUp(f"{operation}: {where or 'the input'}: {first['msg']}", "INVALID_INPUT") from None
    except KeyError:
        raise GiveUp(
            f"there is no operation {operation!r}; it is one of {', '.join(REQUEST_MODELS)}", "INVALID_INPUT"
        ) from None
