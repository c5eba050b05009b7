"""How a search or a download ends that gives no clip.

FootageError             worth another try
├── InvalidAnswer        an answer that is not the provider's wire format (FOOTAGE_INVALID_ANSWER)
└── ClipUnavailable      the file did not come, or not whole (CLIP_UNAVAILABLE)
FootageRefused (GiveUp)  the request is at fault (FOOTAGE_BAD_REQUEST)
ClipUnusable (GiveUp)    this clip can never be used, another may: it is no video, or its link leads to a private place

Where the whole provider fails or refuses our account, the engine's own ProviderDown, ProviderRefuses and RateLimited
let the pool wait.
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
