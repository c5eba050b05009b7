"""The port to whatever has moving pictures: Pexels, its stand-in, or clips that are drawn on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class FoundClip:
    """A clip that could be used. All texts are the provider's own: show them as text, and call no link yourself.

    `id` names its source too, so that ids of two sources never meet. `url` is the page of the clip, which must be shown
    beside the author's name; it is https or empty. `link` and `picture` are for `fetch` and `picture` alone.
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
    @property
    def name(self) -> str: ...

    async def search(self, query: str, *, language: str, seconds: float, limit: int = 10) -> list[FoundClip]:
        """The best first; those that last `seconds` before those that do not. Empty if there is nothing.

        Raises RateLimited, ProviderDown or ProviderRefuses, for which the pool waits, or FootageError.
        """

    async def fetch(self, found: FoundClip, to: Path) -> None:
        """Write the clip to `to`, whole or not at all. Raises ClipUnusable where another clip must be taken, and
        ClipUnavailable where it did not come, and another may."""

    async def fetch_thumbnail(self, found: FoundClip, to: Path) -> None:
        """Write a frame of it as JPEG. Raises what `fetch` does."""
