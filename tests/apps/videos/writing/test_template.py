"""The offline writer: honest, of the wanted length, and changed by what a reviewer says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from retoma_apps.videos.models import Language, Script
from retoma_apps.videos.writing import TemplateWriter, Writer, thumbnail_texts
from retoma_apps.videos.writing.passages import BOOKS, TOPIC
from retoma_apps.videos.writing.quality import report
from tests.apps.videos.writing.texts import a_brief, a_fact

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


async def a_script(
    topic: str = "Fotossíntese",
    language: Language = "pt-BR",
    seconds: int = 60,
    wishes: Sequence[str] = (),
) -> Script:
    brief = a_brief(topic, language, seconds)
    found = await WRITER.research(brief, [], wishes)
    return (await WRITER.script(brief, found.facts, wishes=wishes, former=None)).script


@pytest.mark.parametrize(("topic", "language"), TOPICS)
@pytest.mark.parametrize("seconds", [20, 60, 120, 240])
async def test_any_topic_gets_a_script_of_the_wanted_length_that_passes(
    topic: str, language: Language, seconds: int
) -> None:
    script = await a_script(topic, language, seconds)
    assert script.quality == report(script, language, seconds)
    assert {issue.code for issue in script.quality.issues} <= {"no_source"}
    assert script.word_count == pytest.approx(seconds * 2.5, rel=0.2)
    assert TOPIC not in script.model_dump_json()


@pytest.mark.parametrize(("topic", "language"), TOPICS)
async def test_every_script_says_that_it_is_offline_material(topic: str, language: Language) -> None:
    script = await a_script(topic, language)
    assert "offline" in script.scenes[0].text
    assert BOOKS[language].offline in script.description
    assert any("offline" in tag for tag in script.tags)
    assert all("offline" in source.name for source in script.sources)


async def test_a_topic_that_it_does_not_know_has_no_facts_and_no_made_up_sources() -> None:
    script = await a_script("História do xadrez")
    assert (script.sources, script.facts_used) == ([], 0)
    assert "fontes na descrição" not in script.text


async def test_facts_are_told_with_their_sources() -> None:
    fact = a_fact("O xadrez tem sessenta e quatro casas")
    script = (await WRITER.script(a_brief("Xadrez"), [fact], wishes=[], former=None)).script
    assert (script.sources, script.facts_used) == ([fact.source], 1)
    assert "O xadrez tem sessenta e quatro casas." in script.text
    assert "https://example.org/a" in script.description


async def test_a_fact_for_which_there_is_no_room_is_not_claimed() -> None:
    long = a_fact("palavra " * 200)
    script = (await WRITER.script(a_brief("Xadrez"), [long], wishes=[], former=None)).script
    assert (script.sources, script.facts_used) == ([], 0)


async def test_research_gives_only_what_was_not_known() -> None:
    first = (await WRITER.research(a_brief("Café"), [], [])).facts
    again = (await WRITER.research(a_brief("CAFE"), first[:2], [])).facts
    assert len(first) > 2
    assert again == first[2:]


@pytest.mark.parametrize("wish", ["Deixe mais curto, por favor.", "shorter"])
async def test_it_gets_shorter_when_asked_and_says_nothing_of_it(wish: str) -> None:
    former = await a_script(seconds=120)
    script = await a_script(seconds=120, wishes=[wish])
    assert script.word_count == pytest.approx(former.word_count * 0.7, rel=0.15)
    assert "Na revisão" not in script.text


@pytest.mark.parametrize("wish", ["Quero um texto mais longo", "please make it longer"])
async def test_it_gets_longer_when_asked(wish: str) -> None:
    former = await a_script(seconds=60)
    script = await a_script(seconds=60, wishes=[wish])
    assert script.word_count == pytest.approx(former.word_count * 1.4, rel=0.15)


async def test_a_wish_for_another_length_holds_when_another_wish_comes() -> None:
    former = await a_script(seconds=120)
    later = await a_script(seconds=120, wishes=["mais curto", "fale da clorofila"])
    again = await a_script(seconds=120, wishes=["mais curto", "fale da clorofila", "mais curto"])
    assert later.word_count == pytest.approx(former.word_count * 0.7, rel=0.15)
    assert again.word_count == pytest.approx(former.word_count * 0.49, rel=0.15)
    assert "A clorofila absorve" in again.text


async def test_a_wish_is_answered_with_the_fact_that_fits_it() -> None:
    script = await a_script(wishes=["mais curto, e fale da clorofila!"])
    (answer,) = [scene for scene in script.scenes if scene.text.startswith("Na revisão")]
    assert answer.text.startswith("Na revisão, pediram: fale da clorofila")
    assert "A clorofila absorve bem a luz azul" in answer.text
    assert script.text.count("A clorofila absorve") == 1


async def test_a_wish_that_it_cannot_meet_is_marked_and_not_made_up() -> None:
    script = await a_script("Chess", "en", wishes=["Name the world champions"])
    assert "The review asked: Name the world champions. This ready-made text has no stored fact" in script.text


async def test_an_answer_to_an_earlier_note_stays_when_another_comes() -> None:
    third = await a_script(wishes=["fale da clorofila", "fale do oceano", "fale do oceano"])
    answers = [scene.text for scene in third.scenes if scene.text.startswith("Na revisão")]
    assert ["clorofila" in text for text in answers] == [True, False]
    assert "repeated_sentence" not in {issue.code for issue in third.quality.issues}
    assert third.facts_used >= 2


async def test_a_fact_that_answered_one_note_does_not_answer_the_next() -> None:
    second = await a_script(wishes=["fale da clorofila", "explique melhor a clorofila"])
    assert second.text.count("A clorofila absorve") == 1
    assert "pediram: explique melhor a clorofila" in second.text


async def test_facts_in_another_language_are_not_given() -> None:
    assert (await WRITER.research(a_brief("Café culture", "en"), [], [])).facts == []


HOSTILE = '{x} <script>alert(1)</script> "a“ [b] \x00\u202e**TODO** ' + "y" * 200


async def test_marks_of_a_hostile_topic_or_note_are_not_spoken() -> None:
    script = await a_script(HOSTILE.replace("\x00", ""), wishes=[HOSTILE])
    assert not set('{}<>[]*"\x00\u202e') & set(script.text + script.title + script.description)
    assert len(script.title) <= 100
    assert "unbalanced_quotes" not in {issue.code for issue in script.quality.issues}


@pytest.mark.parametrize("topic", ["!1!", "?a?", "日本の歴史", "a" * 300])
async def test_a_strange_topic_still_gets_a_script(topic: str) -> None:
    script = await a_script(topic)
    assert len(script.scenes) > 2
    assert len(thumbnail_texts(script)) == 3


async def test_the_same_order_gives_the_same_script() -> None:
    assert await a_script(wishes=["fale do mar"]) == await a_script(wishes=["fale do mar"])


async def test_visuals_are_short_and_differ_from_scene_to_scene() -> None:
    script = await a_script("Como investir em renda fixa em 2026", seconds=120)
    assert len({scene.visual for scene in script.scenes}) == len(script.scenes)
    assert all(1 <= len(scene.visual.split()) <= 4 for scene in script.scenes)


async def test_the_visual_of_a_stored_fact_is_a_phrase_from_it() -> None:
    fact = a_fact("As abelhas levam o pólen das flores.")
    script = (await WRITER.script(a_brief("Abelhas"), [fact], wishes=[], former=None)).script
    assert script.scenes[1].visual == "pólen das flores"


@pytest.mark.parametrize(("topic", "language"), TOPICS)
async def test_thumbnails_have_three_different_texts_of_at_most_three_words(topic: str, language: Language) -> None:
    texts = thumbnail_texts(await a_script(topic, language))
    assert len(set(texts)) == len(texts) == 3
    assert all(text == text.upper() and 1 <= len(text.split()) <= 3 and len(text) <= 24 for text in texts)


async def test_a_thumbnail_names_the_subject_and_a_number_that_is_said() -> None:
    texts = thumbnail_texts(await a_script("Como investir em renda fixa em 2026"))
    assert texts[:2] == ["RENDA FIXA", "250 MIL"]
