"""Normalisation takes time proportional to the text, whatever its combining marks."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from itertools import groupby

import pytest

from retoma_apps.providers.unicode_text import MAX_MARKS, compose, decompose, remove_accents

ATTACKS = ["a" + "\u0300\u0316" * 5_000, "a" + "\u0f73" * 10_000, "é" + "\u0344\u0323" * 5_000]


@pytest.mark.parametrize("text", ATTACKS)
@pytest.mark.parametrize("normalize", [compose, decompose, remove_accents])
def test_python_never_sorts_a_long_sequence_of_marks(
    normalize: Callable[[str], str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def record(form: str, part: str) -> str:
        given.append(part)
        return part

    monkeypatch.setattr(unicodedata, "normalize", record)
    normalize(text)
    assert given
    assert max(map(count_longest_marks, given)) <= MAX_MARKS


def count_longest_marks(text: str) -> int:
    marked = (unicodedata.category(each).startswith("M") for each in text)
    return max(len(list(part)) for is_mark, part in groupby(marked) if is_mark)


def test_real_text_is_normalised_as_python_does() -> None:
    text = "São Paulo, Việt Nam, हिन्दी, \uff21\uff11, אָלֶף, \u1e9b\u0323"
    assert compose(text) == unicodedata.normalize("NFC", text)
    assert decompose(text) == unicodedata.normalize("NFKD", text)
    assert remove_accents("São PAULO") == "sao paulo"
