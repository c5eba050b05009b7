"""How the images of a job are divided among the GPUs, and put together again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retoma_apps.providers.gpu import Image, Zoom, filename
from retoma_apps.providers.gpu.render_requests import resolve_zooms

MAX_IMAGES_PER_CHUNK = 20
WebUrl = Annotated[str, Field(pattern=r"^https?://")]


class ImageChunk(BaseModel):
    """The images from `first`, so many. A part is what one GPU is given at a time."""

    model_config = ConfigDict(frozen=True)

    first: int
    count: int

    def select(self, images: Sequence[Image]) -> Sequence[Image]:
        return images[self.first : self.first + self.count]


class HostReply(BaseModel):
    """What a host says, of which only the fields that are named here count; `id` may be a number there."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)

    @classmethod
    def parse(cls, entry: Any) -> Self | None:
        """None if it cannot be read. What is null is not given."""
        given = entry if isinstance(entry, dict) else {}
        try:
            return cls.model_validate({name: value for name, value in given.items() if value is not None})
        except ValidationError:
            return None

    @classmethod
    def parse_all(cls, entries: Any) -> list[Self]:
        """Those that can be read: one that cannot says nothing of its image."""
        read = map(cls.parse, entries if isinstance(entries, list) else ())
        return [each for each in read if each is not None]


class Output(HostReply):
    video_url: WebUrl


class Video(HostReply):
    id: str
    video_url: WebUrl
    filename: str = Field(default_factory=lambda given: filename(given["id"]))


class Fault(HostReply):
    """Why an image has no video. With `final` another try would end in the same way."""

    id: str
    code: str = "PROCESSING_ERROR"
    message: str = ""
    final: bool = False


class Clips(BaseModel):
    """What came of a part."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    videos: list[Video] = []
    failed: list[Fault] = []


def split_into_chunks(images: Sequence[Image], chunk_seconds: float) -> list[ImageChunk]:
    """Parts of up to so many seconds of video each; an image that is longer is a part of its own."""
    parts: list[ImageChunk] = []
    first, seconds = 0, 0.0
    for position, image in enumerate(images):
        is_full = position - first == MAX_IMAGES_PER_CHUNK or seconds + image.duracao > chunk_seconds
        if position > first and is_full:
            parts.append(ImageChunk(first=first, count=position - first))
            first, seconds = position, 0.0
        seconds += image.duracao
    return [*parts, ImageChunk(first=first, count=len(images) - first)]


def assign_zooms(images: Sequence[Image], zoom_types: Sequence[Zoom]) -> list[Image]:
    """Each image with its own movement, or the next in turn, whatever part it will be in."""
    moved = zip(images, resolve_zooms(images, zoom_types), strict=True)
    return [image.model_copy(update={"zoom": zoom}) for image, zoom in moved]


def order_by_image(images: Sequence[Image], videos: Iterable[Video]) -> list[Video]:
    """In the order of the images; those without a video are left out."""
    found = {video.id: video for video in videos}
    return [found[image.id] for image in images if image.id in found]
