"""Find bundled topics by their title, and scenes by the name of their picture."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from retoma_apps.providers.topics.models import Topic, TopicScene
from retoma_apps.providers.unicode_text import remove_accents

_FOLDER = Path(__file__).parent


def list_topics(language: str | None = None) -> tuple[Topic, ...]:
    """Return the topics in this language, or in all of them, by title."""
    return tuple(each for each in _load_topics() if language in (None, each.language))


def find_topic(title: str, language: str | None = None) -> Topic | None:
    """Return the topic with this title, whatever its case, accents and punctuation; the first in any language if none
    is given."""
    wanted = _fold(title)
    found = (each for each in list_topics(language) if wanted in map(_fold, (each.title, *each.also)))
    return next(found, None)


def find_translation(topic: Topic, language: str) -> Topic | None:
    """Return the same topic in another language, told in the same scenes, or None if there is none."""
    shape = [scene.picture.kind for scene in topic.scenes]
    found = (each for each in list_topics(language) if each.theme == topic.theme and each != topic)
    return next((each for each in found if [scene.picture.kind for scene in each.scenes] == shape), None)


def find_scene(visual: str) -> tuple[Topic, TopicScene] | None:
    """Return the scene whose picture has this name, with its topic."""
    return _scenes_by_visual().get(_fold(visual))


def find_named_scene(text: str) -> tuple[Topic, TopicScene] | None:
    """Return the first scene whose picture this text names, among other words."""
    folded = f" {_fold(text)} "
    return next((found for visual, found in _scenes_by_visual().items() if f" {visual} " in folded), None)


@cache
def _scenes_by_visual() -> dict[str, tuple[Topic, TopicScene]]:
    return {_fold(scene.visual): (topic, scene) for topic in list_topics() for scene in topic.scenes}


@cache
def _load_topics() -> tuple[Topic, ...]:
    found = (
        Topic.model_validate({"language": path.parent.name, **tomllib.loads(path.read_text("utf-8"))})
        for path in _FOLDER.glob("*/*.toml")
    )
    return tuple(sorted(found, key=lambda topic: topic.title))


def _fold(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", remove_accents(text)))
