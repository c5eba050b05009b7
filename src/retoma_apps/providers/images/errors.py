"""Errors of image generation.

ImageError               may be retried; the call may have been paid for
├── ImageUnavailable     no answer in time, or the download failed (IMAGE_TIMEOUT, IMAGE_UNAVAILABLE)
└── InvalidImage         an answer without an image, or an unreadable image (IMAGE_INVALID_ANSWER)
ImageRefused (GiveUp)    a retry would not help (IMAGE_CONTENT_FILTERED, IMAGE_BAD_REQUEST)

If the whole provider fails or rejects our account, the engine's ProviderDown, ProviderRejected and RateLimited pause
the pool.
"""

from __future__ import annotations

from retoma import GiveUp


class ImageError(Exception):
    code = "IMAGE_ERROR"


class ImageUnavailable(ImageError):
    def __init__(self, message: str, code: str = "IMAGE_UNAVAILABLE") -> None:
        super().__init__(message)
        self.code = code


class InvalidImage(ImageError):
    code = "IMAGE_INVALID_ANSWER"


class ImageRefused(GiveUp):
    """`code` is IMAGE_CONTENT_FILTERED or IMAGE_BAD_REQUEST."""
