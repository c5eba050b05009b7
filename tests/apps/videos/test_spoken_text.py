"""Words and sentences, as counted for speech."""

from __future__ import annotations

import pytest

from retoma_apps.videos.spoken_text import (
    clean_text,
    fold,
    guess_language,
    split_sentences,
    split_words,
    truncate,
    word_count,
)


def test_what_a_hyphen_an_apostrophe_or_a_decimal_mark_joins_is_one_word() -> None:
    assert split_words("O guarda-chuva d'água custa 3,50 — ou 1.250?") == [
        "O",
        "guarda-chuva",
        "d'água",
        "custa",
        "3,50",
        "ou",
        "1.250",
    ]


def test_marks_alone_are_no_words() -> None:
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
def test_sentences_end_at_their_marks_and_not_within_numbers_or_short_forms(text: str, count: int) -> None:
    assert len(split_sentences(text)) == count


def test_cleaning_leaves_what_can_be_seen_and_heard() -> None:
    assert clean_text(" a\u202eb\x00\n\tc\ud800 e\u0301 ") == "ab c é"


def test_folding_forgets_case_accents_and_punctuation() -> None:
    assert fold("Ação, JÁ!") == fold("acao ja") == "acao ja"


def test_a_text_is_cut_between_words() -> None:
    assert truncate("um texto comprido", 12) == "um texto…"
    assert truncate("x" * 30, 10) == "x" * 9 + "…"
    assert truncate("curto", 5) == "curto"


def test_a_language_is_known_by_its_small_words() -> None:
    assert guess_language("A luz do sol e a água são o que a planta usa.") == "pt-BR"
    assert guess_language("The light of the sun is what plants use.") == "en"
