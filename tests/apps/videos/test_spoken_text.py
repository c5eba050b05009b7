"""Words and sentences, as counted for speech."""

from __future__ import annotations

import pytest

from retoma_apps.media.spoken_text import (
    clean_text,
    fold,
    guess_language,
    split_sentences,
    split_words,
    truncate,
    word_count,
)


def test_words_joined_by_a_hyphen_an_apostrophe_or_a_decimal_mark_are_one_word() -> None:
    assert split_words("O guarda-chuva d'água custa 3,50 — ou 1.250?") == [
        "O",
        "guarda-chuva",
        "d'água",
        "custa",
        "3,50",
        "ou",
        "1.250",
    ]


def test_punctuation_alone_is_not_a_word() -> None:
    assert word_count("— … !? _ ***") == 0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Um. Dois! Três?", 3),
        ("Custa 3.50 hoje. E amanhã?", 2),
        ("O Dr. Silva chegou. A Sra. Lima também.", 2),
        ("Ele disse: “Basta!” E saiu.", 2),
        ("Sem ponto\nNem aqui", 2),
        ("Espere… já vai.", 2),
        ("... ! ?", 0),
    ],
)
def test_sentences_end_at_punctuation_but_not_within_numbers_or_abbreviations(text: str, count: int) -> None:
    assert len(split_sentences(text)) == count


def test_cleaning_keeps_visible_and_audible_text() -> None:
    assert clean_text(" a\u202eb\x00\n\tc\ud800 e\u0301 ") == "ab c é"


def test_folding_ignores_case_accents_and_punctuation() -> None:
    assert fold("Ação, JÁ!") == fold("acao ja") == "acao ja"


def test_a_text_is_cut_between_words() -> None:
    assert truncate("um texto comprido", 12) == "um texto…"
    assert truncate("x" * 30, 10) == "x" * 9 + "…"
    assert truncate("curto", 5) == "curto"


def test_a_language_is_detected_by_its_common_words() -> None:
    assert guess_language("A luz do sol e a água são o que a planta usa.") == "pt-BR"
    assert guess_language("The light of the sun is what plants use.") == "en"
