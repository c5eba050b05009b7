"""Detect the language of a text by its most common words.

It tells only Portuguese, English and Spanish apart, and needs about thirty words of running text. It does not tell
Brazilian from European Portuguese, and a text with long quotations in another language may confuse it.
"""

from __future__ import annotations

import re

from retoma_apps.autowriter.models import Language
from retoma_apps.autowriter.steps.texts import count_words

MIN_WORDS = 30
_MIN_SHARE = 0.08  # of all words; running text has far more of its language's common words
_MIN_LEAD = 1.3  # over the second language
# Words that are common in one of the languages and rare in the others.
_COMMON_WORDS: dict[Language, str] = {
    "pt-BR": (
        "não são está uma um do da dos das no na nos nas ao à às pelo pela os as o e é em com mais também até você "
        "isso quando muito já há ou seu sua foi tem mas ser pode entre depois cerca ainda"
    ),
    "en": (
        "the of and to in is that it was for on are with as at be this from or by an not have which has their its "
        "than can about more most when what who they been will into"
    ),
    "es": (
        "el los las una un del en y es no con más también hasta usted eso cuando muy ya hay su sus fue tiene pero ser "
        "puede entre después al lo por están qué cómo según unos"
    ),
}


_WORDS = {language: frozenset(re.findall(r"\w+", text)) for language, text in _COMMON_WORDS.items()}


def detect_language(text: str) -> Language | None:
    """Return the language, or None if the text is too short or no language is clearly ahead."""
    if count_words([text]) < MIN_WORDS:
        return None
    words = re.findall(r"\w+", text.casefold())
    shares = sorted(
        ((sum(word in common for word in words) / len(words), language) for language, common in _WORDS.items()),
        reverse=True,
    )
    (best, language), (second, _) = shares[0], shares[1]
    return language if best >= _MIN_SHARE and best >= second * _MIN_LEAD else None
