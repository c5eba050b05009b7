"""Errors of footage searches and downloads.

FootageError             may be retried
├── InvalidAnswer        an answer that is not in the provider's wire format (FOOTAGE_INVALID_ANSWER)
└── ClipUnavailable      the file could not be downloaded completely (CLIP_UNAVAILABLE)
FootageRefused (GiveUp)  the request is invalid (FOOTAGE_BAD_REQUEST)
ClipUnusable (GiveUp)    this clip can never be used, another may: it is not a video, or its link is not allowed

If the whole provider fails or rejects our account, the engine's ProviderDown, ProviderRejected and RateLimited pause
the pool.
"""

from __future__ import annotations

from retoma import GiveUp


class FootageError(Exception):
    code = "FOOTAGE_ERROR"


class InvalidAnswer(FootageError):
    code = "FOOTAGE_INVALID_ANSWER"


class ClipUnavailable(FootageError):
    code = "CLIP_UNAVAILABLE"


class FootageRefused(GiveUp):
    def __init__(self, message: str) -> None:
        super().__init__(message, "FOOTAGE_BAD_REQUEST")


class ClipUnusable(GiveUp):
    def __init__(self, message: str) -> None:
        super().__init__(message, "CLIP_UNUSABLE")
