"""The port for stock footage: Pexels, its stand-in, or clips drawn on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from retoma_apps.providers.provider import EnvironmentProvider


@dataclass(frozen=True)
class FoundClip:
    """A clip from a search. All texts come from the provider: show them as plain text, and do not fetch links directly.

    `id` includes the source, so ids of two sources never collide. `url` is the clip's page, which must be shown next to
    the author's name; it is https or empty. `link` and `picture` are only for `fetch` and `fetch_thumbnail`.
    """

    id: str
    source: str
    url: str
    author: str
    link: str
    picture: str
    seconds: float
    width: int
    height: int
    tags: tuple[str, ...] = ()


class Footage(Protocol):
    """`is_offline` if it runs on this machine, without a service. A scene that is longer than `longest_shot` seconds
    needs several clips, because viewers want another picture."""

    name: str
    is_offline: bool
    longest_shot: float

    async def search(self, query: str, *, language: str, seconds: float, limit: int = 10) -> list[FoundClip]:
        """Return the best first, clips of at least `seconds` before shorter ones. Empty if there are none.

        Raise RateLimited, ProviderDown or ProviderRejected to pause the pool, or FootageError.
        """

    async def fetch(self, found: FoundClip, to: Path) -> None:
        """Write the clip to `to` atomically. Raise ClipUnusable if another clip is needed, or ClipUnavailable if the
        download failed and may be retried."""

    async def fetch_thumbnail(self, found: FoundClip, to: Path) -> None:
        """Write a frame of it as JPEG. Raise the same errors as `fetch`."""


class FootageProvider(Footage, EnvironmentProvider, Protocol):
    """What a class needs to be registered."""
