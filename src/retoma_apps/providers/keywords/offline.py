"""The offline implementation: the phrase and its own words. It knows nothing about what people search for."""

from __future__ import annotations

from retoma_apps.providers.keywords.port import Suggestion, Suggestions
from retoma_apps.providers.provider import OfflineProvider

_SHORTEST_WORD = 4


class OfflineKeywords(OfflineProvider):
    name = "offline"
    model = "phrase"

    async def suggest(self, seed: str, *, language: str, limit: int) -> Suggestions:
        words = [word.strip(".,;:!?()\"'").lower() for word in seed.split()]
        long_words = [word for word in words if len(word) >= _SHORTEST_WORD]
        phrases = dict.fromkeys([" ".join(words), *long_words])
        return Suggestions(tuple(Suggestion(phrase) for phrase in phrases if phrase)[:limit])
