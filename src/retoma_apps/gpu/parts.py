"""How the images of a job are divided among the GPUs, and put together again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from retoma_apps.providers.gpu import DEFAULT_ZOOMS, Image, Zoom

MOST_IN_A_PART = 20


class Part(BaseModel):
    """The images from `first`, so many. A part is what one GPU is given at a time."""

    model_config = ConfigDict(frozen=True)

    first: int
    count: int

    def of(self, images: Sequence[Image]) -> Sequence[Image]:
        return images[self.first : self.first + self.count]


class Video(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str
    video_url: str
    filename: str


class Fault(BaseModel):
    """Why an image has no video. With `final` another try would end in the same way."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str
    code: str = "PROCESSING_ERROR"
    message: str = ""
    final: bool = False


class Clips(BaseModel):
    """What came of a part."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    videos: list[Video] = []
    failed: list[Fault] = []


def divided(images: Sequence[Image], part_seconds: float) -> list[Part]:
    """Parts of up to so many seconds of video each; an image that is longer is a part of its own."""
    parts: list[Part] = []
    first, seconds = 0, 0.0
    for position, image in enumerate(images):
        is_full = position - first == MOST_IN_A_PART or seconds + image.duracao > part_seconds
        if position > first and is_full:
            parts.append(Part(first=first, count=position - first))
            first, seconds = position, 0.0
        seconds += image.duracao
    return [*parts, Part(first=first, count=len(images) - first)] if images else []


def with_zooms(images: Sequence[Image], zoom_types: Sequence[Zoom]) -> list[Image]:
    """Each image with its own movement, or the next in turn, whatever part it will be in."""
    turns = zoom_types or DEFAULT_ZOOMS
    return [
        image if image.zoom else image.model_copy(update={"zoom": turns[position % len(turns)]})
        for position, image in enumerate(images)
    ]


def together(images: Sequence[Image], videos: Iterable[Video]) -> list[Video]:
    """In the order of the images; those without a video are left out."""
    found = {video.id: video for video in videos}
    return [found[image.id] for image in images if image.id in found]
