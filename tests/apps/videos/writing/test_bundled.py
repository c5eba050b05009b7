"""The offline writer: it tells bundled topics, of the target length, and follows what feedback it can."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from retoma import GiveUp
from retoma_apps.media.headlines import thumbnail_texts
from retoma_apps.media.models import Language
from retoma_apps.providers.topics import find_topic, list_topics
from retoma_apps.videos.models import Script
from retoma_apps.videos.steps.writing.bundled import BundledWriter, can_follow
from retoma_apps.videos.steps.writing.port import Writer, WritingRequest
from retoma_apps.videos.steps.writing.quality import assess_quality
from tests.apps.videos.writing.texts import make_brief, make_fact

WRITER: Writer = BundledWriter()
COFFEE, FIXED_INCOME = "How coffee is made", "Como investir em renda fixa"
TOPICS = [(topic.title, topic.language) for topic in list_topics()]


async def make_script(
    topic: str = COFFEE, language: Language = "en", seconds: int = 60, feedback_history: Sequence[str] = ()
) -> Script:
    brief = make_brief(topic, language, seconds)
    found = await WRITER.research(WritingRequest(brief, [], feedback_history))
    return await WRITER.script(WritingRequest(brief, found, feedback_history))


def list_remarks(script: Script) -> list[str]:
    assert not any(issue.blocking for issue in script.quality.issues)
    return [issue.code for issue in script.quality.issues]


@pytest.mark.parametrize(("topic", "language"), TOPICS)
@pytest.mark.parametrize("seconds", [25, 60])
async def test_a_bundled_topic_gets_a_script_of_the_requested_length_that_passes(
    topic: str, language: Language, seconds: int
) -> None:
    script = await make_script(topic, language, seconds)
    assert script.quality == assess_quality(script, language, seconds)
    assert (list_remarks(script), script.quality.passed) == (["not_checked"], True)
    assert script.word_count == pytest.approx(seconds * 2.5, rel=0.2)
    assert script.facts_used
    assert script.sources


@pytest.mark.parametrize(("topic", "language"), TOPICS)
async def test_a_script_begins_and_ends_as_its_topic_does(topic: str, language: Language) -> None:
    bundled = find_topic(topic, language)
    assert bundled is not None
    for seconds in (20, 60, 3600):
        scenes = (await make_script(topic, language, seconds)).scenes
        assert [scenes[0].text, scenes[-1].text] == [bundled.scenes[0].text, bundled.scenes[-1].text]
    assert [scene.text for scene in scenes] == [scene.text for scene in bundled.scenes]


@pytest.mark.parametrize(("topic", "language"), TOPICS)
async def test_the_description_says_that_the_script_is_bundled_and_lists_its_sources(
    topic: str, language: Language
) -> None:
    script = await make_script(topic, language)
    assert "Retoma" in script.description
    assert "offline" in script.description
    assert all(source.name in script.description for source in script.sources)
    assert {source.origin for source in script.sources} == {"offline_facts"}


@pytest.mark.parametrize(
    ("topic", "visual"),
    [
        (FIXED_INCOME, "cinco passos para começar"),
        (FIXED_INCOME, "resgatar a qualquer dia ou no vencimento"),
        (FIXED_INCOME, "o que o FGC garante"),
        ("How photosynthesis works", "why leaves are green"),
        ("Como funciona a fotossíntese", "por que as folhas são verdes"),
    ],
)
async def test_a_minute_shows_what_the_title_and_the_thumbnails_promise(topic: str, visual: str) -> None:
    bundled = find_topic(topic)
    assert bundled is not None
    script = await make_script(topic, "en" if bundled.language == "en" else "pt-BR", 60)
    assert visual in [scene.visual for scene in script.scenes]


async def test_a_script_cites_only_the_facts_of_its_scenes() -> None:
    short, long = await make_script(seconds=25), await make_script(seconds=300)
    assert set(short.facts) < set(long.facts)
    stranger = make_fact("O xadrez tem sessenta e quatro casas.")
    script = await WRITER.script(WritingRequest(make_brief(COFFEE, "en"), [stranger]))
    assert (script.facts, script.sources, script.quality.passed) == ([], [], False)


@pytest.mark.parametrize(("topic", "language"), [("Xadrez", "pt-BR"), (FIXED_INCOME, "en"), (COFFEE, "pt-BR")])
async def test_another_topic_needs_a_language_model(topic: str, language: Language) -> None:
    with pytest.raises(GiveUp, match="needs a language model: set OPENROUTER_API_KEY, or choose one of") as raised:
        await WRITER.research(WritingRequest(make_brief(topic, language)))
    assert raised.value.code == "NEEDS_LANGUAGE_MODEL"
    assert all(each.title in str(raised.value) for each in list_topics(language))


async def test_research_returns_only_new_facts() -> None:
    first = await WRITER.research(WritingRequest(make_brief("Café")))
    again = await WRITER.research(WritingRequest(make_brief("CAFE"), first[:2]))
    assert len(first) > 2
    assert again == first[2:]


@pytest.mark.parametrize("feedback_note", ["Deixe mais curto, por favor.", "shorter"])
async def test_a_script_gets_shorter_on_request(feedback_note: str) -> None:
    previous = await make_script(seconds=100)
    script = await make_script(seconds=100, feedback_history=[feedback_note])
    assert script.word_count == pytest.approx(previous.word_count * 0.7, rel=0.15)
    assert list_remarks(script) == ["not_checked"]


@pytest.mark.parametrize("feedback_note", ["Quero um texto mais longo", "please make it longer"])
async def test_a_script_gets_longer_on_request(feedback_note: str) -> None:
    previous = await make_script(seconds=60)
    script = await make_script(seconds=60, feedback_history=[feedback_note])
    assert script.word_count == pytest.approx(previous.word_count * 1.4, rel=0.15)
    assert list_remarks(script) == ["not_checked"]


async def test_a_requested_scene_is_told_even_if_there_is_no_room_for_others() -> None:
    previous = await make_script(FIXED_INCOME, "pt-BR", 25)
    script = await make_script(FIXED_INCOME, "pt-BR", 25, ["fale das debêntures e do FGC"])
    assert "Debêntures ficam de fora" not in previous.text
    assert "Debêntures ficam de fora" in script.text
    assert (list_remarks(script), script.not_understood) == (["not_checked"], [])


async def test_feedback_persists_when_other_feedback_follows() -> None:
    notes = ["tell about Brazil", "shorter"]
    script = await make_script(seconds=60, feedback_history=notes)
    assert "Brazil grows the most" in script.text
    assert script.word_count < (await make_script(seconds=60, feedback_history=notes[:1])).word_count


@pytest.mark.parametrize(
    ("note", "follows"),
    [
        ("shorter", True),
        ("tell about Brazil", True),
        ("shorter and funnier", False),
        ("tell about tea", False),
        ("tell about the cherry", False),
        ("de novo", False),
        ("", False),
    ],
)
def test_a_note_is_followed_only_if_all_of_it_changes_the_script(note: str, follows: bool) -> None:
    topic = find_topic(COFFEE, "en")
    assert topic is not None
    assert can_follow(note, topic, 60, []) is follows


@pytest.mark.parametrize(
    ("note", "topic"),
    [
        ("Não fale dos cinco passos", FIXED_INCOME),
        ("Não inclua LCI e LCA", FIXED_INCOME),
        ("Sem o Tesouro Selic, por favor", FIXED_INCOME),
        ("Remova o FGC e fale do Tesouro Selic", FIXED_INCOME),
        ("Mais curto, e tire o FGC", FIXED_INCOME),
        ("Deixe o Tesouro Selic de fora", FIXED_INCOME),
        ("Menos sobre LCI e LCA", FIXED_INCOME),
        ("Só fale de LCI e LCA", FIXED_INCOME),
        ("Os cinco passos estão errados", FIXED_INCOME),
        ("O Tesouro Selic não é para reserva: está errado", FIXED_INCOME),
        ("A Selic é definida a cada 30 dias", FIXED_INCOME),
        ("Explique LCI e LCA com exemplos de valores", FIXED_INCOME),
        ("Por que vocês mentiram sobre LCI?", FIXED_INCOME),
        ("Deixe a parte de LCI e LCA mais curta", FIXED_INCOME),
        ("Do not mention caffeine", COFFEE),
        ("Don't talk about caffeine", COFFEE),
        ("No caffeine, please", COFFEE),
        ("without the growers", COFFEE),
        ("Remove the part about Brazil and Vietnam", COFFEE),
        ("Drop Brazil", COFFEE),
        ("less about caffeine", COFFEE),
        ("Too much about caffeine", COFFEE),
        ("tell only about caffeine", COFFEE),
        ("The caffeine is wrong", COFFEE),
        ("Wrong: caffeine does not come from the bean", COFFEE),
        ("Make the part about caffeine shorter", COFFEE),
    ],
)
async def test_a_note_that_asks_for_anything_else_is_not_followed(note: str, topic: str) -> None:
    bundled = find_topic(topic)
    assert bundled is not None
    assert not can_follow(note, bundled, 60, [])
    language: Language = "en" if topic == COFFEE else "pt-BR"
    script = await make_script(topic, language, feedback_history=[note])
    assert script.text == (await make_script(topic, language)).text
    assert script.not_understood == [note]


@pytest.mark.parametrize(
    "note",
    [
        "Fale das três formas de render, por favor",
        "Inclua o que vale para LCI e LCA",
        "Mais curto, e fale do Tesouro Selic",
        "Quero muito mais longo",
        "Fale mais sobre as Copom e a Selic",
        "conte sobre o pós-fixado",
    ],
)
def test_a_note_that_only_asks_for_a_length_or_a_scene_is_followed(note: str) -> None:
    topic = find_topic(FIXED_INCOME)
    assert topic is not None
    assert can_follow(note, topic, 25, [])


def test_a_script_that_has_all_scenes_cannot_get_longer() -> None:
    topic = find_topic(COFFEE, "en")
    assert topic is not None
    assert can_follow("longer", topic, 60, [])
    assert not can_follow("longer", topic, 60, ["longer"] * 4)


async def test_a_note_that_was_not_followed_becomes_a_remark() -> None:
    script = await make_script(feedback_history=["shorter and funnier"])
    assert list_remarks(script) == ["not_understood", "not_checked"]


async def test_visuals_differ_from_scene_to_scene() -> None:
    for topic, language in TOPICS:
        script = await make_script(topic, language, 300)  # type: ignore[arg-type]
        assert len({scene.visual for scene in script.scenes}) == len(script.scenes)


@pytest.mark.parametrize(("topic", "language"), TOPICS)
async def test_thumbnails_have_three_different_texts_of_at_most_three_words(topic: str, language: Language) -> None:
    script = await make_script(topic, language)
    texts = thumbnail_texts(script.title, script.text)
    assert len(set(texts)) == len(texts) == 3
    assert all(text == text.upper() and 1 <= len(text.split()) <= 3 and len(text) <= 24 for text in texts)


@pytest.mark.parametrize(
    ("title", "language", "texts"),
    [
        ("Why the sky is blue", "en", ["SKY", "10 YEARS", "THE ESSENTIALS"]),
        ("Como o pão é feito", "pt-BR", ["PÃO", "10 ANOS", "O ESSENCIAL"]),
    ],
)
def test_other_thumbnails_name_the_subject_and_a_number_from_the_script(
    title: str, language: Language, texts: list[str]
) -> None:
    text = {"en": "It took the people of the town 10 years.", "pt-BR": "O povo da cidade levou 10 anos."}[language]
    script = Script(title=title, language=language, scenes=[{"text": text, "visual": "a"}])
    assert thumbnail_texts(script.title, script.text) == texts
