"""What `retoma dev` says in each language."""

from __future__ import annotations

from string import Formatter

import pytest

from retoma import texts


def fields(sentence: str) -> set[str | None]:
    return {name for _, name, _, _ in Formatter().parse(sentence)}


def test_both_languages_say_the_same() -> None:
    for english, portuguese in texts._TEXTS.values():
        assert fields(english) == fields(portuguese)


@pytest.mark.parametrize(
    ("locale", "said"),
    [
        ({"LANG": "pt_BR.UTF-8"}, "nenhum rodou de novo"),
        ({"LANG": "en_US.UTF-8"}, "none was run again"),
        ({"LANG": "pt_BR.UTF-8", "LC_ALL": "C"}, "none was run again"),
        ({}, "none was run again"),
    ],
)
def test_the_language_is_that_of_the_locale(monkeypatch: pytest.MonkeyPatch, locale: dict[str, str], said: str) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in locale.items():
        monkeypatch.setenv(name, value)
    assert texts.text("not again") == said
