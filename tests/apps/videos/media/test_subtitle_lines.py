from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retoma_apps.media.models import Line
from retoma_apps.media.narration import Joined
from retoma_apps.media.subtitle_lines import (
    MAX_ROW_CHARACTERS,
    MAX_ROWS,
    MAX_SECONDS,
    build_subtitle_lines,
)
from retoma_apps.providers.speech.port import Word

TEXT = (
    "A inflação corrói o dinheiro parado, e por isso muita gente procura a renda fixa. Não é difícil. "
    "Com pouco mais de trinta reais já se compra um título do Tesouro, que rende todos os dias úteis."
)


def spoken(*texts: str, seconds: float = 12.0, gap: float = 0.5) -> Joined:
    starts = tuple(number * (seconds + gap) for number in range(len(texts)))
    ends = tuple(start + seconds for start in starts)
    return Joined(ends[-1], starts, ends)


def format_lines(shown: list[Line]) -> str:
    return " ".join(" ".join(line.text.split()) for line in shown)


def test_every_word_is_shown_once_and_in_order() -> None:
    assert format_lines(build_subtitle_lines([TEXT, TEXT], [(), ()], spoken(TEXT, TEXT))) == f"{TEXT} {TEXT}"


def test_a_line_is_readable() -> None:
    shown = build_subtitle_lines([TEXT], [()], spoken(TEXT))
    assert all(1 <= line.end - line.start <= MAX_SECONDS for line in shown)
    assert all(len(line.text.split("\n")) <= MAX_ROWS for line in shown)
    assert all(len(row) <= MAX_ROW_CHARACTERS for line in shown for row in line.text.split("\n"))
    assert all(before.end <= after.start for before, after in pairwise(shown))


def test_a_line_ends_with_its_sentence_and_leaves_no_single_word() -> None:
    shown = build_subtitle_lines([TEXT], [()], spoken(TEXT))
    assert any(line.text.endswith("renda fixa.") for line in shown)
    assert min(len(line.text.split()) for line in shown) >= 3


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        (
            "In the roaster the beans reach about two hundred degrees, turn brown, and a fragrant oil comes out.",
            ["degrees,", "out."],
        ),
        (
            "O imposto só incide sobre o ganho, e cai com o tempo: de vinte e dois e meio por cento, até seis meses, "
            "para quinze por cento, depois de dois anos.",
            ["tempo:", "meses,", "anos."],
        ),
        (
            "Uma frase longa sem nenhuma pausa em que alguém possa respirar é dividida em duas partes de mesmo tamanho",
            ["possa", "tamanho"],
        ),
    ],
)
def test_a_long_sentence_is_cut_where_a_speaker_pauses(text: str, ends: list[str]) -> None:
    shown = build_subtitle_lines([text], [()], spoken(text, seconds=len(text) / 15))
    assert [line.text.split()[-1] for line in shown] == ends


def test_the_voices_own_timings_are_used_if_available() -> None:
    words = (Word("Bom", 0.2, 0.9), Word("dia.", 1.0, 2.0), Word("Até", 5.0, 6.0), Word("logo.", 6.1, 7.25))
    joined = Joined(20, (10.0,), (18.0,))
    shown = build_subtitle_lines(["Bom dia. Até logo."], [words], joined)
    assert [(line.text, line.start, line.end) for line in shown] == [("Bom dia.", 10.2, 12), ("Até logo.", 15, 17.25)]


def test_invalid_timings_stay_within_their_chunk() -> None:
    words = (Word("um", 3.0, 99.0), Word("dois", 1.0, 0.5), Word("três", 50.0, 60.0))
    shown = build_subtitle_lines(["um dois três"], [words], Joined(20, (10.0,), (15.0,)))
    assert format_lines(shown) == "um dois três"
    assert all(10 <= line.start < line.end <= 20 for line in shown)


def test_a_short_line_stays_for_a_second_if_nothing_follows() -> None:
    [line] = build_subtitle_lines(["Sim."], [(Word("Sim.", 0, 0.2),)], Joined(5, (0.0,), (0.3,)))
    assert line.end == 1


def test_a_short_sentence_is_shown_with_its_neighbour() -> None:
    words = (Word("Sim.", 0, 0.3), Word("Claro", 0.4, 1.0), Word("que", 1.1, 1.5), Word("sim.", 1.6, 2.4))
    [line] = build_subtitle_lines(["Sim. Claro que sim."], [words], Joined(3, (0.0,), (3.0,)))
    assert line.text == "Sim. Claro que sim."


@pytest.mark.parametrize("text", ["", "   \n "])
def test_a_chunk_without_words_has_no_lines(text: str) -> None:
    assert build_subtitle_lines([text], [()], Joined(3, (0.0,), (3.0,))) == []


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=200), min_size=1, max_size=4), st.floats(0.1, 40))
def test_any_text_produces_lines_that_fit_and_never_overlap(texts: list[str], seconds: float) -> None:
    shown = build_subtitle_lines(texts, [()] * len(texts), spoken(*texts, seconds=seconds))
    assert "".join(format_lines(shown).split()) == "".join("".join(texts).split())
    assert all(len(line.text.split("\n")) <= MAX_ROWS for line in shown)
    assert all(len(row) <= MAX_ROW_CHARACTERS for line in shown for row in line.text.split("\n"))
    assert all(line.start <= line.end <= line.start + MAX_SECONDS + 0.01 for line in shown)
    assert all(before.end <= after.start for before, after in pairwise(shown))


@pytest.mark.parametrize(("scenes", "shown"), [([0, 0], ["Sim. Claro que sim."]), ([0, 1], ["Sim.", "Claro que sim."])])
def test_a_short_chunk_is_shown_with_its_neighbour_of_the_same_scene(scenes: list[int], shown: list[str]) -> None:
    joined = Joined(3, (0.0, 0.8), (0.4, 3.0))
    made = build_subtitle_lines(["Sim.", "Claro que sim."], [(), ()], joined, scenes=scenes)
    assert [line.text for line in made] == shown


def test_digits_take_longer_to_say_than_as_many_letters() -> None:
    digits = "Rende 14,75% de R$ 250.000,00 e 3,25% de R$ 80.000,00."
    plain = "Rende bem e todo mundo aqui sabe que vai render mais."
    first, second = build_subtitle_lines([f"{digits} {plain}"], [()], spoken(digits, seconds=7))
    assert (first.text.split()[1], second.text.split()[1]) == ("14,75%", "bem")
    assert 4.5 < second.start < 5.5
