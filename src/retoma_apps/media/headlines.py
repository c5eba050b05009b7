"""Choose the few words on a thumbnail."""

from __future__ import annotations

import re
from collections.abc import Iterator

from retoma_apps.media.content_words import content_words, is_content
from retoma_apps.media.models import MOST_THUMBNAILS
from retoma_apps.media.script_texts import SCRIPT_TEXTS
from retoma_apps.media.spoken_text import fold, guess_language, split_words
from retoma_apps.providers.topics import find_topic

MOST_WORDS = 3
_LONGEST = 24
_JOINS = frozenset({"of", "and", "the", "in", "e", "em", "de", "da", "do", "das", "dos"})
_NUMBER = re.compile(
    r"\b(\d+(?:[.,]\d+)?(?: ?%| (?:mil|milhões|bilhões|anos|dias|thousand|million|billion|years|days)\b))",
    re.IGNORECASE,
)


def thumbnail_texts(title: str, text: str) -> list[str]:
    """Return three different texts in upper case, of at most three words each, for a film with this title and spoken
    text."""
    chosen: dict[str, str] = {}
    for words in _candidate_texts(title, text):
        if len(chosen) < MOST_THUMBNAILS and 0 < len(words) <= _LONGEST:
            chosen.setdefault(fold(words), words.upper())
    return list(chosen.values())


def _candidate_texts(title: str, text: str) -> Iterator[str]:
    """Yield the words of a bundled topic, or the subject, a number from the text and general phrases: at least
    three."""
    if topic := find_topic(title):
        yield from (each.text for each in topic.thumbnails)
    yield _subject(title)
    if number := _NUMBER.search(text):
        yield number[1].replace(" %", "%")
    yield from SCRIPT_TEXTS[guess_language(text)].hooks


def _subject(title: str) -> str:
    """Return the most significant phrase before the colon: `renda fixa` for `Como investir em renda fixa`."""
    words = split_words(title.partition(":")[0])
    spans = [words[start:end] for start in range(len(words)) for end in range(start + 1, start + MOST_WORDS + 1)]
    return max((" ".join(span) for span in spans if _is_readable(span)), key=_weight, default="")


def _is_readable(span: list[str]) -> bool:
    inner = all(is_content(word) or word.casefold() in _JOINS for word in span)
    return inner and is_content(span[0]) and is_content(span[-1]) and len(" ".join(span)) <= _LONGEST


def _weight(phrase: str) -> tuple[int, int]:
    return len(content_words(phrase)), -len(split_words(phrase))
