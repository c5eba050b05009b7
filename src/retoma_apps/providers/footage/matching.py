"""Rank clips for a query, and compute how much of a narration they cover."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from retoma_apps.providers.footage.port import FoundClip
from retoma_apps.providers.unicode_text import remove_accents

LONG_ENOUGH = 8.0
"""Seconds above which more length does not improve a clip's rank."""
_LARGE_ENOUGH = 1920 * 1080
_WORDS, _LENGTH, _SIZE = 0.7, 0.15, 0.15
_MIN_COMMON_SHARE = 0.75
_MIN_COMMON_PREFIX = 5
_STOP_WORD_TEXT = (
    "a ao aos as com como da das de do dos e em entre na nas no nos o os ou para pela pelas pelo pelos por que se sem "
    "sob sobre sua suas seu seus um uma umas uns "
    "about an and are at by for from in into is its of on or over the their this that to under with"
)
_STOP_WORDS = frozenset(_STOP_WORD_TEXT.split())


def relevance(query: str, found: FoundClip) -> float:
    """Score a clip from 0 to 1: mostly by query words among its tags, the rest by length and size."""
    return round(_WORDS * _share_of_words(query, found.tags) + _LENGTH * _length(found) + _SIZE * _size(found), 3)


def rank_clips(query: str, candidates: Iterable[FoundClip]) -> list[FoundClip]:
    """Return the most relevant first. Equal scores keep the provider's order."""
    return sorted(candidates, key=lambda found: relevance(query, found), reverse=True)


def choose_clip(candidates: Sequence[FoundClip], used_ids: Collection[str]) -> FoundClip | None:
    """Return the first clip that the video does not use yet, else the first; None only if there are no candidates."""
    return next((found for found in candidates if found.id not in used_ids), candidates[0] if candidates else None)


def coverage(filled_seconds: Iterable[float], audio_seconds: float) -> float:
    """Return how much of the narration the clips fill, in per cent, at most 100."""
    if audio_seconds <= 0:
        return 0.0
    return round(min(sum(filled_seconds) / audio_seconds, 1.0) * 100, 1)


def keywords(text: str) -> list[str]:
    """Return a text's significant words in singular form, without accents, capitals and stop words."""
    words = re.findall(r"[^\W_]+", remove_accents(text))
    return list(dict.fromkeys(_singular(each) for each in words if each not in _STOP_WORDS))


def _share_of_words(query: str, tags: Iterable[str]) -> float:
    wanted, had = keywords(query), keywords(" ".join(tags))
    if not wanted:
        return 0.0
    return sum(any(_are_alike(one, other) for other in had) for one in wanted) / len(wanted)


def _are_alike(one: str, other: str) -> bool:
    """Return whether two words are equal or share a long prefix, as forms of one word do: `oceano` and `ocean`."""
    if one == other:
        return True
    common = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return common >= _MIN_COMMON_PREFIX and common / max(len(one), len(other)) >= _MIN_COMMON_SHARE


def _singular(word: str) -> str:
    if len(word) < 4 or word.isdigit():
        return word
    for ending, single in (("oes", "ao"), ("aes", "ao"), ("ais", "al"), ("ns", "m"), ("ies", "y"), ("ss", "ss")):
        if word.endswith(ending):
            return word.removesuffix(ending) + single
    return word.removesuffix("s")


def _length(found: FoundClip) -> float:
    return min(max(found.seconds, 0.0) / LONG_ENOUGH, 1.0)


def _size(found: FoundClip) -> float:
    return min(max(found.width * found.height, 0) / _LARGE_ENOUGH, 1.0)
