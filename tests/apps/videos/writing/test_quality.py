"""The quality report of a script, and what blocks it."""

from __future__ import annotations

from typing import Any

import pytest

from retoma_apps.videos.models import Scene, Script, Source
from retoma_apps.videos.steps.writing.quality import assess_quality, readability, reading_ease
from tests.apps.videos.writing.texts import make_script, make_sentences


def codes(script: Script, seconds: int | None = None) -> list[str]:
    return [issue.code for issue in assess_quality(script, "pt-BR", seconds).issues]


def test_reading_ease_has_the_constants_of_each_language() -> None:
    assert reading_ease("O gato bebe leite.", "pt-BR") == pytest.approx(248.835 - 1.015 * 4 - 84.6 * 7 / 4)
    assert reading_ease("The cat drinks milk.", "en") == pytest.approx(206.835 - 1.015 * 4 - 84.6 * 4 / 4)


def test_long_words_and_sentences_score_lower_and_the_score_is_from_0_to_10() -> None:
    easy, hard = "O sol dá luz.", "Institucionalização interdisciplinaridade constitucionalmente indispensabilíssima."
    assert readability(easy, "pt-BR") == 10
    assert readability(hard, "pt-BR") == 0
    assert readability("", "pt-BR") == 0
    assert codes(make_script(hard)) == ["hard_to_follow"]


def test_a_good_script_has_no_issues() -> None:
    found = assess_quality(make_script(make_sentences(8), make_sentences(7, 9)), "pt-BR", 60)
    assert (found.passed, found.issues, found.visual_markers) == (True, [], 2)


@pytest.mark.parametrize(
    ("sentences", "code", "passed"),
    [
        (15, None, True),
        (20, "too_long", True),
        (24, "much_too_long", False),
        (10, "too_short", True),
        (7, "much_too_short", False),
    ],
)
def test_the_length_is_compared_with_the_requested_length(sentences: int, code: str | None, passed: bool) -> None:
    half = sentences // 2
    found = assess_quality(make_script(make_sentences(half), make_sentences(sentences - half, 11)), "pt-BR", 60)
    assert [issue.code for issue in found.issues] == ([code] if code else [])
    assert found.passed is passed


def test_a_visual_may_stay_for_75_seconds_of_speech() -> None:
    assert codes(make_script(make_sentences(18))) == []
    found = assess_quality(make_script(make_sentences(19)), "pt-BR")
    assert ([issue.code for issue in found.issues], found.passed) == (["too_few_visuals"], False)


def test_a_repeated_visual_counts_once() -> None:
    two = make_script(make_sentences(10), make_sentences(10, 9))
    same = two.model_copy(update={"scenes": [Scene(text=scene.text, visual="Céu!") for scene in two.scenes]})
    assert (codes(two), codes(same)) == ([], ["too_few_visuals"])
    assert assess_quality(same, "pt-BR").visual_markers == 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"{'casa ' * 41}.", "long_sentence"),
        ("A casa é bela. Vou ali. A casa, é bela!", "repeated_sentence"),
        ("Ele disse “vou.", "unbalanced_quotes"),
        ('Ele disse "vou.', "unbalanced_quotes"),
        ("Ele (o pai disse.", "unbalanced_quotes"),
        ("Fale de {topic} aqui.", "leftover_marks"),
        ("TODO: falar da lua.", "leftover_marks"),
        ("Veja [imagem da lua] aqui.", "leftover_marks"),
        ("Isto é **forte** aqui.", "leftover_marks"),
    ],
)
def test_each_problem_is_reported(text: str, code: str) -> None:
    assert code in codes(make_script(text))
    assert assess_quality(make_script(text), "pt-BR").passed is (code != "leftover_marks")


@pytest.mark.parametrize(
    "text", [f"{'sol ' * 40}.", "Sim. Sim. Sim.", "É PARA TODO MUNDO.", "Todo dia é dia.", "Ele disse “vou”."]
)
def test_correct_text_is_not_reported(text: str) -> None:
    assert codes(make_script(text)) == []


def test_a_delimiter_left_in_the_title_is_found_too() -> None:
    assert codes(make_script("A lua.").model_copy(update={"title": "Sobre {tema}"})) == [
        "leftover_marks",
        "leftover_marks",
    ]


@pytest.mark.parametrize(
    ("changed", "codes"),
    [
        ({"sources": []}, ["no_source"]),
        ({"facts_used": 0}, ["no_facts"]),
        ({"facts_used": 0, "sources": []}, ["no_facts", "no_source"]),
    ],
)
def test_a_script_without_a_fact_or_a_source_never_passes(changed: dict[str, Any], codes: list[str]) -> None:
    found = assess_quality(make_script("A lua é bela.").model_copy(update=changed), "pt-BR")
    assert ([issue.code for issue in found.issues], found.passed) == (codes, False)


def test_facts_from_a_models_memory_are_noted_in_the_report() -> None:
    remembered = Source(name="NASA", confidence=0, origin="model_memory")
    found = assess_quality(make_script("A lua é bela.", sources=[remembered]), "pt-BR")
    assert ([issue.code for issue in found.issues], found.passed) == (["unverified"], True)


def test_issues_are_in_the_language_of_the_script() -> None:
    script = make_script("A lua é bela.", sources=())
    assert assess_quality(script, "pt-BR").issues[1].text.startswith("Nenhuma fonte é citada: ")
    assert assess_quality(script, "en").issues[1].text.startswith("No source is cited: ")
