"""A topic as data: its facts with their sources, and its scenes with their words and pictures."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from retoma_apps.providers.pictures.models import Icon, Model, Picture, Theme

Text = Annotated[str, Field(min_length=1)]


class TopicSource(Model):
    """Where a fact can be checked. `url` is the address of that page, or empty if it is not certain."""

    name: Text
    url: str = Field("", pattern=r"^(https://\S+)?$")


class TopicFact(Model):
    """A statement of a scene, and the key of its source."""

    text: Text
    source: Text


class TopicScene(Model):
    """A passage of the narration. `visual` names its picture, and no other picture has the same name.

    If there is no room for all scenes, those with a low `rank` stay. The first and the last scene have rank 1.
    """

    visual: Text
    text: Text
    picture: Picture
    rank: int = Field(1, ge=1)
    facts: tuple[TopicFact, ...] = ()

    @model_validator(mode="after")
    def _check_cues(self) -> Self:
        for cue in self.picture.cues:
            if cue not in self.text:
                raise ValueError(f"{cue!r} is not in the text of the scene {self.visual!r}")
        return self


class TopicThumbnail(Model):
    """A few words, and an icon that shows what they say."""

    text: Text
    icon: Icon


class Topic(Model):
    """`also` are other titles under which it is found."""

    language: Text
    title: Text
    also: tuple[str, ...] = ()
    theme: Theme
    summary: Text
    tags: tuple[str, ...]
    thumbnails: tuple[TopicThumbnail, ...]
    sources: dict[str, TopicSource]
    scenes: tuple[TopicScene, ...] = Field(min_length=3)

    @model_validator(mode="after")
    def _check_sources(self) -> Self:
        for fact in self.facts:
            if fact.source not in self.sources:
                raise ValueError(f"{self.title!r} has no source {fact.source!r}")
        return self

    @property
    def facts(self) -> list[TopicFact]:
        return [fact for scene in self.scenes for fact in scene.facts]
