"""The external services that a story needs, or their offline implementations."""

from __future__ import annotations

from retoma_apps.media.services import WrittenFilmServices
from retoma_apps.stories.steps.writing.port import StoryWriter


class Services(WrittenFilmServices[StoryWriter]):
    """A story needs no services of its own."""
