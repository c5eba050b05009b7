"""Divide a job's images among the GPUs, and merge the results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retoma_apps.providers.gpu import Image, Zoom, filename
from retoma_apps.providers.gpu.render_requests import resolve_zooms

MAX_IMAGES_PER_CHUNK = 20
WebUrl = Annotated[str, Field(pattern=r"^https?://")]


class ImageChunk(BaseModel):
    """`count` images from `first`, rendered by one GPU at a time."""

    model_config = ConfigDict(frozen=True)

    first: int
    count: int

    def select(self, images: Sequence[Image]) -> Sequence[Image]:
        return images[self.first : self.first + self.count]


class HostReply(BaseModel):
    """An entry in a host's result. Unknown fields are ignored; `id` may be a number there."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)

    @classmethod
    def parse(cls, entry: Any) -> Self | None:
        """Return None if the entry is invalid. A null field counts as absent."""
        fields = entry if isinstance(entry, dict) else {}
        try:
            return cls.model_validate({name: value for name, value in fields.items() if value is not None})
        except ValidationError:
            return None

    @classmethod
    def parse_all(cls, entries: Any) -> list[Self]:
        """Return the valid entries: an invalid one says nothing about its image."""
        read = map(cls.parse, entries if isinstance(entries, list) else ())
        return [each for each in read if each is not None]


class Output(HostReply):
    video_url: WebUrl


class Video(HostReply):
    id: str
    video_url: WebUrl
    filename: str = Field(default_factory=lambda data: filename(data["id"]))


class Fault(HostReply):
    """Why an image has no video. If `final`, a retry would fail in the same way."""

    id: str
    code: str = "PROCESSING_ERROR"
    message: str = ""
    final: bool = False


class Clips(BaseModel):
    """The result of one chunk."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    videos: list[Video] = []
    failed: list[Fault] = []


def split_into_chunks(images: Sequence[Image], chunk_seconds: float) -> list[ImageChunk]:
    """Return chunks of up to `chunk_seconds` of video; a longer image is a chunk alone."""
    chunks: list[ImageChunk] = []
    first, seconds = 0, 0.0
    for position, image in enumerate(images):
        is_full = position - first == MAX_IMAGES_PER_CHUNK or seconds + image.duracao > chunk_seconds
        if position > first and is_full:
            chunks.append(ImageChunk(first=first, count=position - first))
            first, seconds = position, 0.0
        seconds += image.duracao
    return [*chunks, ImageChunk(first=first, count=len(images) - first)]


def assign_zooms(images: Sequence[Image], zoom_types: Sequence[Zoom]) -> list[Image]:
    """Return each image with its own movement, or the next in turn, independent of its chunk."""
    zoomed = zip(images, resolve_zooms(images, zoom_types), strict=True)
    return [image.model_copy(update={"zoom": zoom}) for image, zoom in zoomed]


def order_by_image(images: Sequence[Image], videos: Iterable[Video]) -> list[Video]:
    """Return the videos in the order of the images; images without a video are left out."""
    found = {video.id: video for video in videos}
    return [found[image.id] for image in images if image.id in found]
