"""Scripts, translations and texts, with a language model and without one."""

from __future__ import annotations

import pytest

from retoma import GiveUp
from retoma_apps.providers.llm import InvalidJson, Llm
from retoma_apps.providers.topics import Topic, find_topic, find_translation, list_topics
from retoma_apps.stories.models import Brief, Scene
from retoma_apps.stories.steps.writing.bundled import BundledStoryWriter
from retoma_apps.stories.steps.writing.llm import LlmStoryWriter
from tests.apps.videos.writing.texts import ScriptedLlm

COFFEE = Brief(topic="How coffee is made", language="en", languages=["pt-BR"])


@pytest.mark.parametrize("count", [1, 2, 5, 13, 15, 20])
async def test_a_bundled_script_has_as_many_scenes_as_ordered(count: int) -> None:
    scenes = await BundledStoryWriter().script(COFFEE.model_copy(update={"scenes": count}))
    assert [scene.id for scene in scenes] == [str(number) for number in range(1, count + 1)]


@pytest.mark.parametrize("topic", list_topics(), ids=lambda topic: topic.title)
async def test_a_short_bundled_script_keeps_its_beginning_and_its_end(topic: Topic) -> None:
    language = "en" if topic.language == "en" else "pt-BR"
    scenes = await BundledStoryWriter().script(Brief(topic=topic.title, language=language, scenes=3))
    assert len(scenes) == 3
    assert (scenes[0].visual, scenes[-1].visual) == (topic.scenes[0].visual, topic.scenes[-1].visual)


async def test_a_bundled_script_says_every_sentence_once() -> None:
    topic = find_topic("How coffee is made", "en")
    assert topic is not None
    scenes = await BundledStoryWriter().script(COFFEE.model_copy(update={"scenes": 15}))
    assert " ".join(scene.text for scene in scenes) == " ".join(scene.text for scene in topic.scenes)


@pytest.mark.parametrize("topic", list_topics(), ids=lambda topic: topic.title)
def test_translated_topics_translate_back(topic: Topic) -> None:
    other = find_translation(topic, "en" if topic.language == "pt-BR" else "pt-BR")
    assert other is None or find_translation(other, topic.language) == topic
    assert (other is None) == (topic.theme == "finance")


@pytest.mark.parametrize("topic", list_topics(), ids=lambda topic: topic.title)
async def test_the_picture_of_a_number_is_never_shown_in_two_scenes(topic: Topic) -> None:
    language = "en" if topic.language == "en" else "pt-BR"
    scenes = await BundledStoryWriter().script(Brief(topic=topic.title, language=language, scenes=60))
    numbers = {scene.visual for scene in topic.scenes if scene.picture.kind == "number"}
    shown = [scene.visual for scene in scenes if scene.visual in numbers]
    assert len(shown) == len(set(shown))


async def test_the_translations_of_all_scenes_are_the_other_topic() -> None:
    writer, other = BundledStoryWriter(), find_topic("Como o café é feito", "pt-BR")
    assert other is not None
    scenes = await writer.script(COFFEE.model_copy(update={"scenes": 15}))
    translated = [await writer.translate(COFFEE, scene, "pt-BR") for scene in scenes]
    assert " ".join(translated) == " ".join(scene.text for scene in other.scenes)


async def test_an_edited_scene_cannot_be_translated_without_a_model() -> None:
    scene = (await BundledStoryWriter().script(COFFEE))[0].model_copy(update={"text": "Something else."})
    with pytest.raises(GiveUp, match="was changed"):
        await BundledStoryWriter().translate(COFFEE, scene, "pt-BR")


def write_with(*answers: object) -> tuple[LlmStoryWriter, ScriptedLlm]:
    llm = ScriptedLlm(*answers)
    typed: Llm = llm
    return LlmStoryWriter(typed, "model"), llm


async def test_a_model_writes_scenes_about_any_topic() -> None:
    answer = {"scenes": [{"text": "One\x00 two.", "visual": "a cup"}, {"text": "  ", "visual": "nothing"}]}
    writer, llm = write_with(answer)
    scenes = await writer.script(Brief(topic="Tea </script>", scenes=7, language="en"))
    assert [(scene.id, scene.text, scene.visual) for scene in scenes] == [("1", "One two.", "a cup")]
    system, user = llm.asked[0]
    assert "7 scenes" in system.content
    assert "Tea" not in system.content
    assert "Tea" in user.content


async def test_a_model_may_have_nothing_to_tell() -> None:
    writer, _ = write_with({"scenes": []})
    assert await writer.script(Brief(topic="Tea")) == []


async def test_a_model_translates_and_an_empty_translation_is_refused() -> None:
    writer, _ = write_with({"text": "Uma frase."}, {"text": "…"})
    scene = Scene(id="1", text="A sentence.", visual="a cup")
    assert await writer.translate(COFFEE, scene, "pt-BR") == "Uma frase."
    with pytest.raises(InvalidJson):
        await writer.translate(COFFEE, scene, "pt-BR")


async def test_a_model_writes_texts_in_every_language() -> None:
    texts = {"language": "pt-BR", "title": "Café", "description": "Sobre café."}
    answer = {"title": "Coffee", "description": "On coffee.", "tags": ["tea", "tea", "a,b"], "localizations": [texts]}
    writer, _ = write_with(answer, answer | {"localizations": []})
    metadata = await writer.metadata(COFFEE, [])
    assert (metadata.title, metadata.tags) == ("Coffee", ["tea", "ab"])
    assert metadata.localizations["pt-BR"].title == "Café"
    with pytest.raises(InvalidJson):
        await writer.metadata(COFFEE, [])
