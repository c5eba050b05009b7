"""Errors of publishing.

SessionGone              the session has expired and a video may exist: call `find` before a new `begin`
GiveUp                   the video, its texts or its thumbnail are rejected: a retry would not help

If the whole provider fails or rejects our account, no video is at fault: the engine's ProviderDown, ProviderRejected
and RateLimited pause the pool, and no attempt is used up.
"""

from __future__ import annotations


class SessionGone(Exception):
    """May be retried only after `find` has returned no video."""

    code = "SESSION_GONE"

    def __init__(self) -> None:
        super().__init__("the upload session has expired: check whether the video exists before starting a new one")
