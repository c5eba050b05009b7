"""How an order for a picture ends that gives none.

ImageError               worth another try; the call may have been paid for
├── ImageUnavailable     no answer in time, or a picture that did not come (IMAGE_TIMEOUT, IMAGE_UNAVAILABLE)
└── InvalidImage         an answer without a picture, or one that cannot be read (IMAGE_INVALID_ANSWER)
ImageRefused (GiveUp)    no other try would help (IMAGE_CONTENT_FILTERED, IMAGE_BAD_REQUEST)

Where the whole provider fails or refuses our account, the engine's own ProviderDown, ProviderRefuses and RateLimited
let the pool wait.
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
    """`code` is one of those above."""
