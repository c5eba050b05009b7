"""Which clips fit a query, and how much of a narration they fill."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence

from retoma_apps.providers.footage.port import FoundClip

LONG_ENOUGH = 8.0
"""Seconds from which a clip is not better for being longer."""
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
    """From 0 to 1: most of it for the query's words among the tags, the rest for its length and its size."""
    return round(_WORDS * _share_of_words(query, found.tags) + _LENGTH * _length(found) + _SIZE * _size(found), 3)


def rank_clips(query: str, candidates: Iterable[FoundClip]) -> list[FoundClip]:
    """The most relevant first. Where they are alike, the provider's own order stays."""
    return sorted(candidates, key=lambda found: relevance(query, found), reverse=True)


def choose_clip(candidates: Sequence[FoundClip], used_ids: Collection[str]) -> FoundClip | None:
    """The first that the video does not have yet; if it has them all, the first; None only if there is none."""
    return next((found for found in candidates if found.id not in used_ids), candidates[0] if candidates else None)


def coverage(filled_seconds: Iterable[float], audio_seconds: float) -> float:
    """How much of the narration the clips fill, in per cent and never over 100."""
    if audio_seconds <= 0:
        return 0.0
    return round(min(sum(filled_seconds) / audio_seconds, 1.0) * 100, 1)


def keywords(text: str) -> list[str]:
    """What a text is about: without accents, capitals, endings of the plural, and words that say nothing."""
    bare = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(each for each in bare if not unicodedata.combining(each))
    return list(dict.fromkeys(_singular(each) for each in re.findall(r"[^\W_]+", plain) if each not in _STOP_WORDS))


def _share_of_words(query: str, tags: Iterable[str]) -> float:
    wanted, had = keywords(query), keywords(" ".join(tags))
    if not wanted:
        return 0.0
    return sum(any(_are_alike(one, other) for other in had) for one in wanted) / len(wanted)


def _are_alike(one: str, other: str) -> bool:
    """Equal, or with so long a common beginning that they are forms of one word: `oceano` and `ocean`."""
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
