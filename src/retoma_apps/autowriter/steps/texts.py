"""Words of texts: count them, compare them, and make slugs of them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from retoma_apps.media.content_words import is_content
from retoma_apps.providers.unicode_text import decompose, remove_accents

_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
_NOT_IN_A_SLUG = re.compile(r"[^a-z0-9]+")
_LONGEST_SLUG = 80
_STEM = 4  # letters: the endings of inflected words differ
_STOPWORDS = frozenset(
    _WORD.findall(
        "a o os as um uma de da do das dos e é em no na nos nas por para com que como se ao à às aos sem sobre mais "
        "the an of and is in on to for with that how what why when your it its are be at by from "
        "el la los las un una del y en por para con que como se al lo su sus es"
    )
)


def count_words(texts: Iterable[str]) -> int:
    return sum(len(_WORD.findall(text)) for text in texts)


def fold(text: str) -> str:
    """Return the text in lower case, without accents and punctuation, with single spaces."""
    return " ".join(_WORD.findall(remove_accents(text)))


def list_content_words(text: str) -> list[str]:
    """Return the folded words that carry meaning, in order."""
    return [word for word in fold(text).split() if word not in _STOPWORDS and len(word) > 2]


def list_significant_stems(text: str) -> list[str]:
    """Return the beginnings of the folded words that carry meaning, and all numbers, in order."""
    words = fold(text).split()
    return [word[:_STEM] for word in words if word.isdigit() or (word not in _STOPWORDS and is_content(word))]


def contains_phrase(text: str, phrase: str) -> bool:
    """Return whether the text has all words of the phrase that carry meaning, singular or plural, in any order."""
    words = {word.removesuffix("s") for word in fold(text).split()}
    wanted = list_content_words(phrase) or fold(phrase).split()
    return bool(wanted) and all(word.removesuffix("s") in words for word in wanted)


def make_slug(title: str) -> str:
    """Return `cafe-e-sono` for "Café e sono", cut between words."""
    plain = decompose(title).encode("ascii", "ignore").decode().lower()
    slug = _NOT_IN_A_SLUG.sub("-", plain).strip("-")
    return slug if len(slug) <= _LONGEST_SLUG else slug[: _LONGEST_SLUG + 1].rpartition("-")[0] or slug[:_LONGEST_SLUG]


def truncate(text: str, limit: int) -> str:
    """Return the text, cut between words if it is longer."""
    return text if len(text) <= limit else text[: limit + 1].rpartition(" ")[0].rstrip(" ,;:-") or text[:limit]
