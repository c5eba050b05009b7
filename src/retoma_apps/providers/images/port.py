"""The port for image generation: a model, its stand-in, or shapes drawn on this machine."""

from __future__ import annotations

from typing import Protocol

from retoma_apps.providers.provider import EnvironmentProvider


class Images(Protocol):
    """`is_offline` if it runs on this machine, without a service. `follows_notes` if it follows the prompt; otherwise a
    different prompt only gives a different picture."""

    name: str
    is_offline: bool
    model: str
    follows_notes: bool

    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        """Return a JPEG of exactly this size. One paid call.

        Raise RateLimited, ProviderDown or ProviderRejected to pause the pool; GiveUp if a retry would not help; or
        ImageError.
        """


class ImagesProvider(Images, EnvironmentProvider, Protocol):
    """What a class needs to be registered."""
