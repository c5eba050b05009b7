"""Errors of keyword searches.

KeywordsError              may be retried (KEYWORDS_TIMEOUT, KEYWORDS_INVALID_ANSWER, KEYWORDS_FAILED)
KeywordsRefused (GiveUp)   a retry would not help (KEYWORDS_BAD_REQUEST)

If the whole provider fails or rejects our account, the engine's ProviderDown, ProviderRejected and RateLimited pause
the pool.
"""

from __future__ import annotations

from retoma import GiveUp


class KeywordsError(Exception):
    def __init__(self, message: str, code: str = "KEYWORDS_FAILED") -> None:
        super().__init__(message)
        self.code = code


class KeywordsRefused(GiveUp):
    def __init__(self, message: str) -> None:
        super().__init__(message, "KEYWORDS_BAD_REQUEST")
