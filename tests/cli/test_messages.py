"""The language and the colours of the terminal."""

from __future__ import annotations

import pytest

from retoma.cli.messages import format_decimal, gettext
from retoma.cli.printing import _COLOURS
from retoma.states import RunState


@pytest.mark.parametrize(
    ("locale", "message", "number"),
    [
        ({"LANG": "pt_BR.UTF-8"}, "nenhum foi executado de novo", "1,5"),
        ({"LANG": "en_US.UTF-8"}, "none was run again", "1.5"),
        ({"LANG": "pt_BR.UTF-8", "LC_ALL": "C"}, "none was run again", "1.5"),
        ({}, "none was run again", "1.5"),
    ],
)
def test_the_language_follows_the_locale(
    monkeypatch: pytest.MonkeyPatch, locale: dict[str, str], message: str, number: str
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in locale.items():
        monkeypatch.setenv(name, value)
    assert gettext("none was run again") == message
    assert format_decimal(1.5) == number


@pytest.mark.parametrize("state", RunState)
def test_every_state_of_a_run_has_a_colour(state: RunState) -> None:
    assert state in _COLOURS, f"{state!r} has no colour: add it to _COLOURS in cli/printing.py"
