"""How publishing may end otherwise.

SessionGone              the session has ended; there may be a video or not: ask `find`, then begin anew
GiveUp                   the video, its words or its thumbnail are refused: no other try would help

No video is to blame where the whole provider fails or refuses our account: then the engine's own ProviderDown,
ProviderRefuses and RateLimited let the pool wait, and no attempt is used up.
"""

from __future__ import annotations


class SessionGone(Exception):
    """Worth another try only after `find` has said that there is no video."""

    code = "SESSION_GONE"

    def __init__(self) -> None:
        super().__init__("the upload's session is gone: look whether the video is there, and begin anew if it is not")
