"""The port to whatever makes pictures from words: a model, its stand-in, or shapes that are drawn on this machine."""

from __future__ import annotations

from typing import Protocol


class Images(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def follows_notes(self) -> bool:
        """Whether it draws what is written, or only other pictures for other words."""

    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        """A JPEG of exactly this size. One call, which is paid for.

        Raises RateLimited, ProviderDown or ProviderRefuses, for which the pool waits; GiveUp where no other try would
        help; or ImageError.
        """
