"""What the work of a GPU host is expected to cost in US dollars, so that budgets are checked before it is submitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from retoma_apps.gpu.settings import LIMITS
from retoma_apps.gpu.steps.image_chunks import Fault, ImageChunk
from retoma_apps.providers.gpu import Image, Operation

GPU_SECOND = Decimal("0.00031")
_START = 60  # seconds in which a GPU worker starts
_PER_VIDEO_SECOND = 5  # seconds in which it renders a second of video


def estimate_operation(operation: Operation) -> Decimal:
    """Return the cost of an operation that takes all of its time: the length of its video is not known."""
    return GPU_SECOND * int(LIMITS[operation].total_seconds())


def estimate_clips(part: ImageChunk, images: Sequence[Image]) -> Decimal:
    return _estimate_images(part.select(images))


def estimate_lone_clip(leftover: Fault, images: Sequence[Image]) -> Decimal:
    return _estimate_images(image for image in images if image.id == leftover.id)


def _estimate_images(images: Iterable[Image]) -> Decimal:
    video_seconds = sum(image.duracao for image in images)
    return GPU_SECOND * (_START + _PER_VIDEO_SECOND * Decimal(video_seconds))
