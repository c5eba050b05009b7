"""The port for image generation: a model, its stand-in, or shapes drawn on this machine."""

from __future__ import annotations

from typing import Protocol


class Images(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def follows_notes(self) -> bool:
        """Whether it follows the prompt, or only draws a different picture for a different prompt."""

    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        """Return a JPEG of exactly this size. One paid call.

        Raise RateLimited, ProviderDown or ProviderRejected to pause the pool; GiveUp if a retry would not help; or
        ImageError.
        """
