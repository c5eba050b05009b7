"""The offline writer: honest, of the target length, and responsive to feedback."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from retoma_apps.videos.models import Language, Script
from retoma_apps.videos.steps.writing.headlines import thumbnail_texts
from retoma_apps.videos.steps.writing.offline_texts import SCRIPT_TEXTS, TOPIC
from retoma_apps.videos.steps.writing.port import Writer
from retoma_apps.videos.steps.writing.quality import assess_quality
from retoma_apps.videos.steps.writing.template import TemplateWriter
from tests.apps.videos.writing.texts import make_brief, make_fact

WRITER: Writer = TemplateWriter()
TOPICS: list[tuple[str, Language]] = [
    ("Como investir em renda fixa em 2026", "pt-BR"),
    ("Fotossíntese", "pt-BR"),
    ("O café", "pt-BR"),
    ("História do xadrez", "pt-BR"),
    ("Fixed income for beginners", "en"),
    ("Photosynthesis", "en"),
    ("Coffee", "en"),
    ("The Roman aqueducts", "en"),
]


async def make_script(
    topic: str = "Fotossíntese",
    language: Language = "pt-BR",
    seconds: int = 60,
    feedback_history: Sequence[str] = (),
) -> Script:
    brief = make_brief(topic, language, seconds)
    found = await WRITER.research(brief, [], feedback_history)
    return await WRITER.script(brief, found, feedback_history=feedback_history, previous=None)


@pytest.mark.parametrize(("topic", "language"), TOPICS)
@pytest.mark.parametrize("seconds", [20, 60, 120, 240])
async def test_any_topic_gets_a_script_of_the_requested_length(topic: str, language: Language, seconds: int) -> None:
    script = await make_script(topic, language, seconds)
    assert script.quality == assess_quality(script, language, seconds)
    assert {issue.code for issue in script.quality.issues} <= {"no_source", "no_facts", "topic_unknown"}
    assert script.quality.passed is bool(script.facts_used)
    assert script.word_count == pytest.approx(seconds * 2.5, rel=0.2)
    assert TOPIC not in script.model_dump_json()


@pytest.mark.parametrize(("topic", "language"), TOPICS)
async def test_every_script_says_that_it_was_written_offline(topic: str, language: Language) -> None:
    script = await make_script(topic, language)
    assert "offline" in script.scenes[0].text
    assert SCRIPT_TEXTS[language].offline in script.description
    assert any("offline" in tag for tag in script.tags)
    assert all("offline" in source.name for source in script.sources)


@pytest.mark.parametrize("language", SCRIPT_TEXTS)
async def test_general_passages_give_no_advice_on_how_to_study(language: Language) -> None:
    script = await make_script("Xadrez", language, seconds=600)
    assert not re.search(r"\b(?:estud|aprend|anote|study|learn|write down)", script.text, re.IGNORECASE)


async def test_an_unknown_topic_has_no_facts_and_no_invented_sources() -> None:
    script = await make_script("História do xadrez")
    assert (script.sources, script.facts_used) == ([], 0)
    assert "fontes na descrição" not in script.text


async def test_facts_are_used_with_their_sources() -> None:
    fact = make_fact("O xadrez tem sessenta e quatro casas")
    script = await WRITER.script(make_brief("Xadrez"), [fact], feedback_history=[], previous=None)
    assert (script.sources, script.facts_used) == ([fact.source], 1)
    assert "O xadrez tem sessenta e quatro casas." in script.text
    assert "https://example.org/a" in script.description


async def test_a_fact_that_does_not_fit_is_not_claimed() -> None:
    long = make_fact("palavra " * 200)
    script = await WRITER.script(make_brief("Xadrez"), [long], feedback_history=[], previous=None)
    assert (script.sources, script.facts_used) == ([], 0)


async def test_research_returns_only_new_facts() -> None:
    first = await WRITER.research(make_brief("Café"), [], [])
    again = await WRITER.research(make_brief("CAFE"), first[:2], [])
    assert len(first) > 2
    assert again == first[2:]


@pytest.mark.parametrize("feedback_note", ["Deixe mais curto, por favor.", "shorter"])
async def test_a_script_gets_shorter_on_request_without_mentioning_it(feedback_note: str) -> None:
    previous = await make_script(seconds=120)
    script = await make_script(seconds=120, feedback_history=[feedback_note])
    assert script.word_count == pytest.approx(previous.word_count * 0.7, rel=0.15)
    assert script.quality.issues == []


@pytest.mark.parametrize("feedback_note", ["Quero um texto mais longo", "please make it longer"])
async def test_a_script_gets_longer_on_request(feedback_note: str) -> None:
    previous = await make_script(seconds=60)
    script = await make_script(seconds=60, feedback_history=[feedback_note])
    assert script.word_count == pytest.approx(previous.word_count * 1.4, rel=0.15)


async def test_feedback_on_the_length_persists_when_other_feedback_follows() -> None:
    previous = await make_script(seconds=120)
    later = await make_script(seconds=120, feedback_history=["mais curto", "fale da clorofila"])
    again = await make_script(seconds=120, feedback_history=["mais curto", "fale da clorofila", "mais curto"])
    assert later.word_count == pytest.approx(previous.word_count * 0.7, rel=0.15)
    assert again.word_count == pytest.approx(previous.word_count * 0.49, rel=0.15)
    assert "A clorofila absorve" in again.text


async def test_the_length_is_compared_with_the_length_requested_by_reviewers() -> None:
    script = await make_script(seconds=120, feedback_history=["mais curto", "mais curto", "mais curto"])
    assert (script.seconds, script.quality.issues) == (41, [])


async def test_feedback_selects_a_matching_fact_and_is_not_spoken_itself() -> None:
    script = await make_script(feedback_history=["mais curto, e fale da clorofila!"])
    assert script.scenes[-2].text.startswith("A clorofila absorve bem a luz azul")
    assert script.text.count("A clorofila absorve") == 1
    assert "fale" not in script.text
    assert script.quality.issues == []


@pytest.mark.parametrize(
    ("language", "feedback_note", "message"),
    [
        ("en", "Please make it shorter and funnier", "Offline, this note was not understood, or only in part"),
        ("pt-BR", "mais curto e mais engraçado", "Offline, esta nota não foi entendida ou foi entendida só em parte"),
    ],
)
async def test_a_note_that_is_not_understood_becomes_a_remark_and_leaves_the_script_unchanged(
    language: Language, feedback_note: str, message: str
) -> None:
    script = await make_script("Xadrez", language, feedback_history=[feedback_note])
    assert script.scenes == (await make_script("Xadrez", language, feedback_history=["shorter"])).scenes
    (remark,) = [issue for issue in script.quality.issues if issue.code == "not_understood"]
    assert (remark.text, remark.blocking) == (f"{message}: “{feedback_note}”", False)


async def test_the_response_to_an_earlier_note_stays_when_another_note_follows() -> None:
    third = await make_script(feedback_history=["fale da clorofila", "fale do oxigênio", "fale do oxigênio"])
    assert ["clorofila" in scene.text for scene in third.scenes[-3:-1]] == [True, False]
    assert third.quality.issues == []
    assert third.facts_used >= 2


async def test_a_fact_used_for_one_note_is_not_used_for_the_next() -> None:
    second = await make_script(feedback_history=["fale da clorofila", "explique melhor a clorofila"])
    assert second.text.count("A clorofila absorve") == 1
    assert second.not_understood == ["explique melhor a clorofila"]


async def test_facts_in_another_language_are_not_returned() -> None:
    assert await WRITER.research(make_brief("Café culture", "en"), [], []) == []


HOSTILE = '{x} <script>alert(1)</script> "a“ [b] \x00\u202e**TODO** ' + "y" * 200


async def test_markup_in_a_hostile_topic_or_note_is_not_spoken() -> None:
    script = await make_script(HOSTILE.replace("\x00", ""), feedback_history=[HOSTILE])
    assert not set('{}<>[]*"\x00\u202e') & set(script.text + script.title + script.description)
    assert len(script.title) <= 100
    assert "unbalanced_quotes" not in {issue.code for issue in script.quality.issues}


@pytest.mark.parametrize("topic", ["!1!", "?a?", "日本の歴史", "a" * 300])
async def test_a_strange_topic_still_gets_a_script(topic: str) -> None:
    script = await make_script(topic)
    assert len(script.scenes) > 2
    assert len(thumbnail_texts(script)) == 3


async def test_the_same_order_produces_the_same_script() -> None:
    assert await make_script(feedback_history=["fale do mar"]) == await make_script(feedback_history=["fale do mar"])


async def test_visuals_are_short_and_differ_from_scene_to_scene() -> None:
    script = await make_script("Como investir em renda fixa em 2026", seconds=120)
    assert len({scene.visual for scene in script.scenes}) == len(script.scenes)
    assert all(1 <= len(scene.visual.split()) <= 4 for scene in script.scenes)


async def test_the_visual_of_a_stored_fact_is_a_phrase_from_it() -> None:
    fact = make_fact("As abelhas levam o pólen das flores.")
    script = await WRITER.script(make_brief("Abelhas"), [fact], feedback_history=[], previous=None)
    assert script.scenes[1].visual == "pólen das flores"


@pytest.mark.parametrize(("topic", "language"), TOPICS)
async def test_thumbnails_have_three_different_texts_of_at_most_three_words(topic: str, language: Language) -> None:
    texts = thumbnail_texts(await make_script(topic, language))
    assert len(set(texts)) == len(texts) == 3
    assert all(text == text.upper() and 1 <= len(text.split()) <= 3 and len(text) <= 24 for text in texts)


async def test_a_thumbnail_names_the_subject_and_a_number_from_the_script() -> None:
    texts = thumbnail_texts(await make_script("Como investir em renda fixa em 2026"))
    assert texts[:2] == ["RENDA FIXA", "250 MIL"]


@pytest.mark.parametrize(
    ("topic", "language", "text", "tags"),
    [
        ("How coffee is made", "en", "COFFEE", ["coffee"]),
        ("Why the sky is blue", "en", "SKY", ["sky blue", "sky", "blue"]),
        ("Como o pão é feito", "pt-BR", "PÃO", ["pão"]),
        ("A história do xadrez", "pt-BR", "HISTÓRIA DO XADREZ", ["história xadrez", "história", "xadrez"]),
    ],
)
async def test_tags_and_thumbnails_contain_the_words_of_the_subject(
    topic: str, language: Language, text: str, tags: list[str]
) -> None:
    script = await make_script(topic, language)
    assert thumbnail_texts(script)[0] == text
    assert script.tags == [*tags, *SCRIPT_TEXTS[language].tags]
