"""The topics that can be ordered, as the API lists them."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from retoma_apps.media.models import Language
from retoma_apps.providers import topics


class Topic(BaseModel):
    title: str
    language: str


class TopicList(BaseModel):
    any_topic: bool = Field(
        description="Whether a language model is configured, so any other topic can be ordered too."
    )
    topics: list[Topic] = Field(description="The topics that come with Retoma and need no language model.")


def list_topics(known: Sequence[topics.Topic] | None, language: Language | None = None) -> TopicList:
    """Return the bundled topics in this language, or in all of them. `known` is None if the writer knows any topic."""
    found = [Topic(title=each.title, language=each.language) for each in topics.list_topics(language)]
    return TopicList(any_topic=known is None, topics=found)
