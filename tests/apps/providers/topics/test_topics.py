"""The topics that come with Retoma."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError

from retoma_apps.providers.footage.offline import OfflineFootage
from retoma_apps.providers.topics import Topic, find_named_scene, find_scene, find_topic, list_topics
from tests.apps.providers.footage.conftest import TINY, names

TOPICS = [pytest.param(topic, id=f"{topic.language} {topic.title}") for topic in list_topics()]


def test_the_promised_topics_are_bundled_in_both_languages() -> None:
    titles = {language: {topic.title for topic in list_topics(language)} for language in ("en", "pt-BR")}
    assert {"Como o café é feito", "Como investir em renda fixa"} <= titles["pt-BR"]
    assert "How coffee is made" in titles["en"]
    assert len(titles["en"]) == len(titles["pt-BR"]) == 3


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_has_facts_and_uses_every_source(topic: Topic) -> None:
    assert len(topic.facts) >= 5
    assert {fact.source for fact in topic.facts} == set(topic.sources)
    assert len({fact.text for fact in topic.facts}) == len(topic.facts)
    assert topic.scenes[0].facts, "even the shortest script states a fact"


@pytest.mark.parametrize("topic", TOPICS)
def test_the_address_of_a_source_is_that_of_a_page_and_not_of_a_whole_site(topic: Topic) -> None:
    for source in topic.sources.values():
        assert not source.url or urlsplit(source.url).path.strip("/"), source.name


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_has_pictures_of_several_kinds(topic: Topic) -> None:
    kinds = [scene.picture.kind for scene in topic.scenes]
    assert kinds[0] == kinds[-1] == "title"
    assert len(set(kinds)) >= 5


@pytest.mark.parametrize("topic", TOPICS)
async def test_every_scene_can_be_drawn(topic: Topic, tmp_path: Path) -> None:
    footage = OfflineFootage(TINY)
    for scene in topic.scenes:
        found, *_ = await footage.search(scene.visual, language=topic.language, seconds=1)
        await footage.fetch_thumbnail(found, tmp_path / "picture.jpg")
    assert names(tmp_path) == ["picture.jpg"]


def test_a_topic_is_found_by_its_title_however_it_is_written() -> None:
    assert find_topic("  COMO O CAFE E FEITO? ", "pt-BR") is find_topic("Café") is not None
    assert find_topic("Como o café é feito", "en") is None
    assert find_topic("Why coffee keeps us awake", "en") is None


def test_no_two_pictures_have_the_same_name() -> None:
    for topic in list_topics():
        for scene in topic.scenes:
            assert find_scene(scene.visual) == (topic, scene)
            assert find_named_scene(f"#1 Title. {scene.visual}. Notes") == (topic, scene)
    assert find_scene("a picture that nobody has drawn") is find_named_scene("nothing known") is None


def test_a_cue_that_is_not_spoken_or_a_missing_source_is_an_error() -> None:
    topic = list_topics()[0].model_dump()
    wrong_cue = {"kind": "title", "items": [{"label": "x", "cue": "not spoken"}]}
    for scene in (topic["scenes"][0] | {"picture": wrong_cue}, topic["scenes"][0] | {"facts": [FACT]}):
        with pytest.raises(ValidationError, match=r"not spoken|has no source"):
            Topic.model_validate(topic | {"scenes": [scene, *topic["scenes"][1:]]})


FACT = {"text": "x", "source": "nobody"}
