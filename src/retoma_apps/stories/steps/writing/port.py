"""The port for writers: a language model, or the offline implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from retoma_apps.media.services import FilmWriter, UsageCallback
from retoma_apps.stories.models import Brief, Metadata, Scene


class StoryWriter(FilmWriter, Protocol):
    """`on_usage` receives the cost of each call immediately, whatever follows."""

    async def script(self, brief: Brief, *, on_usage: UsageCallback | None = None) -> list[Scene]:
        """Return about as many scenes as the brief asks for; none if there is nothing to tell."""

    async def translate(
        self, brief: Brief, scene: Scene, language: str, *, on_usage: UsageCallback | None = None
    ) -> str:
        """Return the text of a scene in another language."""

    async def metadata(
        self, brief: Brief, scenes: Sequence[Scene], *, on_usage: UsageCallback | None = None
    ) -> Metadata:
        """Return title, description and tags, and the first two in each language of the translations."""
