"""Pieces of a narration, and plausible lengths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from retoma_apps.providers.speech import Piece, split_into_pieces, split_sentences, verify_length
from retoma_apps.providers.speech.errors import ImplausibleLength, SpeechRefused


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Um. Dois! Três? Quatro… Cinco", ["Um.", "Dois!", "Três?", "Quatro…", "Cinco"]),
        ("O Sr. Silva e a Dra. Lima vieram. Sim.", ["O Sr. Silva e a Dra. Lima vieram.", "Sim."]),
        ("Rende 3,5 ou 1.000 reais. Ou 1.5 por cento.", ["Rende 3,5 ou 1.000 reais.", "Ou 1.5 por cento."]),
        ("Custa R$ 1.000. Depois sobe.", ["Custa R$ 1.000.", "Depois sobe."]),
        ("Escreveu J. K. Rowling. Li.", ["Escreveu J. K. Rowling.", "Li."]),
        ('Disse "sim." Saiu.', ['Disse "sim."', "Saiu."]),
        ("Bem... talvez. Ou não?! Fim", ["Bem... talvez.", "Ou não?!", "Fim"]),
        ("Mr. Smith (Dr. Who) left. Why?", ["Mr. Smith (Dr. Who) left.", "Why?"]),
        ("Título sem ponto\n\nOutro parágrafo", ["Título sem ponto", "Outro parágrafo"]),
        ("uma linha\nque continua", ["uma linha\nque continua"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_a_sentence_ends_where_a_reader_would_end_it(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


def test_chunks_are_as_long_as_whole_sentences_allow_and_know_their_scene() -> None:
    assert split_into_pieces(["Um dois. Três quatro. Cinco.", "Seis."], 21) == [
        Piece(0, "Um dois. Três quatro."),
        Piece(0, "Cinco."),
        Piece(1, "Seis."),
    ]


def test_a_sentence_that_is_too_long_is_split_at_commas_else_between_words() -> None:
    assert [each.text for each in split_into_pieces(["Um dois, três quatro cinco."], 12)] == [
        "Um dois,",
        "três quatro",
        "cinco.",
    ]


def test_text_without_words_is_not_a_chunk() -> None:
    assert split_into_pieces(["", "— … —", "Oi. ..."], 3) == [Piece(2, "Oi.")]


def test_a_word_that_is_too_long_is_rejected_and_not_split() -> None:
    with pytest.raises(SpeechRefused, match="one word") as raised:
        split_into_pieces(["Oi. " + "a" * 30], 20)
    assert raised.value.code == "SPEECH_TOO_LONG"


@given(some.lists(some.text(alphabet="aÉ1 .,!?…\n\"'—Sr", max_size=80), max_size=4), some.integers(80, 120))
def test_no_word_is_lost_broken_or_moved_to_another_scene(scenes: list[str], most: int) -> None:
    made = split_into_pieces(scenes, most)
    assert all(0 < len(each.text) <= most for each in made)
    for number, scene in enumerate(scenes):
        kept = " ".join(each.text for each in made if each.scene == number).split()
        assert spoken(kept) == spoken(scene.split())


@given(some.text(alphabet="aÉ1 .,!\n", max_size=200))
def test_short_chunks_also_keep_every_word(scene: str) -> None:
    most = max([8, *map(len, scene.split())])
    made = split_into_pieces([scene], most)
    assert all(len(each.text) <= most for each in made)
    assert spoken(" ".join(each.text for each in made).split()) == spoken(scene.split())


WORDS = "A renda fixa oferece segurança e liquidez para quem começa. " * 10  # 100 words, about 40 s


@pytest.mark.parametrize("seconds", [25, 40, 70])
def test_audio_with_a_plausible_length_for_its_words_is_accepted(seconds: float) -> None:
    verify_length(WORDS, seconds, "pt-BR")
    verify_length(WORDS, seconds, "en")


@pytest.mark.parametrize(
    ("seconds", "why"), [(0, "truncated"), (10, "truncated"), (300, "silence"), (float("nan"), "silence")]
)
def test_truncated_audio_or_trailing_silence_is_rejected_with_a_message(seconds: float, why: str) -> None:
    with pytest.raises(ImplausibleLength, match=rf"100 words .*{why}"):
        verify_length(WORDS, seconds, "pt-BR")


def test_a_faster_rate_shifts_the_plausible_length() -> None:
    verify_length(WORDS, 14, "pt-BR", rate=1.5)
    with pytest.raises(ImplausibleLength):
        verify_length(WORDS, 14, "pt-BR")


@pytest.mark.parametrize("text", ["2.500.750,75", "IPCA CDB", "www.exemplo.com.br"])
def test_text_that_may_be_spelled_out_may_take_longer(text: str) -> None:
    verify_length(text, 1, "pt-BR")
    verify_length(text, 7, "pt-BR")


@pytest.mark.parametrize("text", ["muito", "Muito,", '"muito."', "(Muito)"])
def test_a_plain_word_does_not_take_seven_seconds(text: str) -> None:
    verify_length(text, 1, "pt-BR")
    with pytest.raises(ImplausibleLength):
        verify_length(text, 7, "pt-BR")


def spoken(words: list[str]) -> list[str]:
    """Leave out isolated punctuation, which pieces may drop."""
    return [word for word in words if any(map(str.isalnum, word))]
