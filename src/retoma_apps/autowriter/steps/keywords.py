"""Choose the keywords of an article."""

from __future__ import annotations

from typing import Any

from retoma import Context
from retoma_apps.autowriter.models import MAX_KEYWORD_LENGTH, Keyword, Keywords, Language
from retoma_apps.autowriter.steps.texts import list_content_words, truncate
from retoma_apps.providers.keywords import KeywordProvider

MAX_KEYWORDS = 10
_LONGEST_FOCUS = 60


async def resolve_keywords(
    theme: str, keyword: str, language: Language, keywords: KeywordProvider, ctx: Context
) -> Keywords:
    """Return the requested focus keyword, or else the most searched one that is about the theme."""

    async def suggest() -> dict[str, Any]:
        suggestions = await keywords.suggest(keyword or theme, language=language, limit=MAX_KEYWORDS)
        ctx.charge(keywords.name, keywords.model, units=1, micros=suggestions.cost)
        short = [each for each in suggestions.found if len(each.text) <= MAX_KEYWORD_LENGTH]
        found = [{"text": each.text, "volume": each.volume} for each in short]
        return {"provider": keywords.name, "found": found}  # a later attempt may have another provider

    answer = await ctx.once("keywords", suggest)
    found = [Keyword.model_validate(each) for each in answer["found"]]
    focus = keyword or _choose_focus(theme, found)
    others = [each for each in found if each.text.casefold() != focus.casefold()]
    return Keywords(focus=focus, others=others, provider=answer["provider"])


def _choose_focus(theme: str, found: list[Keyword]) -> str:
    wanted = set(list_content_words(theme))
    related = (each.text for each in found if wanted & set(list_content_words(each.text)))
    return next((text for text in related if len(text) <= _LONGEST_FOCUS), truncate(theme.lower(), _LONGEST_FOCUS))
