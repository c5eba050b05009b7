"""A voice and its provider."""

from __future__ import annotations

from typing import NamedTuple


class Speaker(NamedTuple):
    """`voice` is the provider's own name; `language` is empty if the voice speaks the language of its text."""

    provider: str
    voice: str
    language: str

    def speaks(self, language: str) -> bool:
        return not self.language or _base(self.language) == _base(language)


def _base(language: str) -> str:
    return language.lower().partition("-")[0]
