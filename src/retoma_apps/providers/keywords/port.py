"""The port for keywords: a keywords API, its stand-in, or the words of the theme itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from retoma_apps.providers.provider import EnvironmentProvider


@dataclass(frozen=True)
class Suggestion:
    """`volume` is the number of searches per month, None if unknown."""

    text: str
    volume: int | None = None


@dataclass(frozen=True)
class Suggestions:
    """`cost` is in millionths of a US dollar; None means that the provider did not report it, not that it was free."""

    found: tuple[Suggestion, ...]
    cost: int | None = 0


class KeywordProvider(Protocol):
    """`is_offline` if it runs on this machine, without a service. `model` is how charges name its resource."""

    name: str
    model: str
    is_offline: bool

    async def suggest(self, seed: str, *, language: str, limit: int) -> Suggestions:
        """Return keywords around a phrase, most searched first. One paid call. `language` is `pt-BR`, `en` or `es`.

        Raise RateLimited, ProviderDown or ProviderRejected to pause the pool; GiveUp if a retry would not help; or
        KeywordsError.
        """


class RegisteredKeywords(KeywordProvider, EnvironmentProvider, Protocol):
    """What a class needs to be registered."""
