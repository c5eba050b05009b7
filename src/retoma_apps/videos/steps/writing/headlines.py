"""Choose the few words on a thumbnail."""

from __future__ import annotations

import re
from collections.abc import Iterator

from retoma_apps.providers.topics import find_topic
from retoma_apps.videos.models import MOST_THUMBNAILS, Script
from retoma_apps.videos.steps.spoken_text import fold, guess_language, split_words
from retoma_apps.videos.steps.writing.content_words import content_words, is_content
from retoma_apps.videos.steps.writing.script_texts import SCRIPT_TEXTS

MOST_WORDS = 3
_LONGEST = 24
_JOINS = frozenset({"of", "and", "the", "in", "e", "em", "de", "da", "do", "das", "dos"})
_NUMBER = re.compile(
    r"\b(\d+(?:[.,]\d+)?(?: ?%| (?:mil|milhões|bilhões|anos|dias|thousand|million|billion|years|days)\b))",
    re.IGNORECASE,
)


def thumbnail_texts(script: Script) -> list[str]:
    """Return three different texts in upper case, of at most three words each."""
    chosen: dict[str, str] = {}
    for text in _candidate_texts(script):
        if len(chosen) < MOST_THUMBNAILS and 0 < len(text) <= _LONGEST:
            chosen.setdefault(fold(text), text.upper())
    return list(chosen.values())


def _candidate_texts(script: Script) -> Iterator[str]:
    """Yield the words of a bundled topic, or the subject, a number from the text and general phrases: at least
    three."""
    if topic := find_topic(script.title):
        yield from topic.thumbnails
    yield _subject(script.title)
    if number := _NUMBER.search(script.text):
        yield number[1].replace(" %", "%")
    yield from SCRIPT_TEXTS[guess_language(script.text)].hooks


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
