"""Words and sentences of spoken text."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from retoma_apps.providers.unicode_text import compose, remove_accents

if TYPE_CHECKING:
    from retoma_apps.media.models import Language

WORDS_PER_MINUTE = 150
_WORD = re.compile("[^\\W_]+(?:[-'\u2019.,](?=[^\\W_])[^\\W_]+)*")
_END = re.compile("[.!?…]+[\"'”\u2019»)\\]]*(?=\\s|$)|\n+")
_SHORT_FORM = re.compile(r"(?<!\w)(?:sra?|srta|dra?|profa?|av|p\.ex|pág|nº|mrs?|ms|vs|e\.g|i\.e|fig)$", re.IGNORECASE)
_PORTUGUESE = re.compile(r"\b(?:os?|as|uma?|d[aeo]s?|em|n[ao]|que|e|é|não|com|por|para|se|mais|como)\b", re.IGNORECASE)
_ENGLISH = re.compile(r"\b(?:the|an|of|and|to|in|is|are|it|that|this|with|for|not|on|by|from|be|or)\b", re.IGNORECASE)


def split_words(text: str) -> list[str]:
    """Return the words. A number with decimals is one word, as are words joined by a hyphen or an apostrophe."""
    return _WORD.findall(text)


def word_count(text: str) -> int:
    return len(split_words(text))


def words_for_seconds(seconds: float) -> int:
    """Return how many words are spoken in that time."""
    return round(seconds * WORDS_PER_MINUTE / 60)


def seconds_for_words(count: int) -> float:
    return count * 60 / WORDS_PER_MINUTE


def split_sentences(text: str) -> list[str]:
    """Return the sentences with at least one word. The end of a line ends a sentence too."""
    found, start = [], 0
    for end in _END.finditer(text):
        if end[0] != "." or not _SHORT_FORM.search(text, start, end.start()):
            found.append(text[start : end.end()].strip())
            start = end.end()
    return [each for each in [*found, text[start:].strip()] if word_count(each)]


def clean_text(text: str) -> str:
    """Return the text on one line, normalised, without control characters and lone surrogates."""
    spaced = (" " if each.isspace() else each for each in compose(text))
    return " ".join("".join(each for each in spaced if unicodedata.category(each)[0] != "C").split())


def fold(text: str) -> str:
    """Return the text without differences in case, accents and punctuation."""
    return " ".join(split_words(remove_accents(text)))


def truncate(text: str, limit: int) -> str:
    """Return at most `limit` characters, cut between words."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    return f"{(cut.rpartition(' ')[0] or cut).rstrip(' ,;:.-')}…"


def guess_language(text: str) -> Language:
    return "en" if len(_ENGLISH.findall(text)) > len(_PORTUGUESE.findall(text)) else "pt-BR"
