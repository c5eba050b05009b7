"""The texts of the plugin are translated to Brazilian Portuguese."""

from __future__ import annotations

from tools import plugin_translations


def test_every_string_of_the_plugin_is_translated_and_none_is_left_over() -> None:
    assert list(plugin_translations.list_problems()) == []


def test_strings_with_placeholders_and_plurals_are_found() -> None:
    found = {message.id for message in plugin_translations.extract()}
    assert "Key %1$s, created on %2$s" in found
    assert ("%d notification was not delivered", "%d notifications were not delivered") in found
