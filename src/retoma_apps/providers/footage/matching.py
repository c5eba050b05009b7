"""Which clips fit a query, and how much of a narration they fill."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence

from retoma_apps.providers.footage.port import Found

LONG_ENOUGH = 8.0
"""Seconds from which a clip is not better for being longer."""
_LARGE_ENOUGH = 1920 * 1080
_WORDS, _LENGTH, _SIZE = 0.7, 0.15, 0.15
_ALIKE = 0.75
_SHORTEST_ALIKE = 5
_SAYS_NOTHING = (
    "a ao aos as com como da das de do dos e em entre na nas no nos o os ou para pela pelas pelo pelos por que se sem "
    "sob sobre sua suas seu seus um uma umas uns "
    "about an and are at by for from in into is its of on or over the their this that to under with"
)
_LEFT_OUT = frozenset(_SAYS_NOTHING.split())


def relevance(query: str, found: Found) -> float:
    """From 0 to 1: most of it for the query's words among the tags, the rest for its length and its size."""
    return round(_WORDS * _shared(query, found.tags) + _LENGTH * _length(found) + _SIZE * _size(found), 3)


def ranked(query: str, founds: Iterable[Found]) -> list[Found]:
    """The most relevant first. Where they are alike, the provider's own order stays."""
    return sorted(founds, key=lambda found: relevance(query, found), reverse=True)


def chosen(founds: Sequence[Found], used_ids: Collection[str]) -> Found | None:
    """The first that the video does not have yet; if it has them all, the first; None only if there is none."""
    return next((found for found in founds if found.id not in used_ids), founds[0] if founds else None)


def coverage(filled_seconds: Iterable[float], audio_seconds: float) -> float:
    """How much of the narration the clips fill, in per cent and never over 100."""
    if audio_seconds <= 0:
        return 0.0
    return round(min(sum(filled_seconds) / audio_seconds, 1.0) * 100, 1)


def words(text: str) -> list[str]:
    """What a text is about: without accents, capitals, endings of the plural, and words that say nothing."""
    bare = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(each for each in bare if not unicodedata.combining(each))
    return list(dict.fromkeys(_singular(each) for each in re.findall(r"[^\W_]+", plain) if each not in _LEFT_OUT))


def _shared(query: str, tags: Iterable[str]) -> float:
    wanted, had = words(query), words(" ".join(tags))
    if not wanted:
        return 0.0
    return sum(any(_are_alike(one, other) for other in had) for one in wanted) / len(wanted)


def _are_alike(one: str, other: str) -> bool:
    """Equal, or with so long a common beginning that they are forms of one word: `oceano` and `ocean`."""
    if one == other:
        return True
    common = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return common >= _SHORTEST_ALIKE and common / max(len(one), len(other)) >= _ALIKE


def _singular(word: str) -> str:
    if len(word) < 4 or word.isdigit():
        return word
    for ending, single in (("oes", "ao"), ("aes", "ao"), ("ais", "al"), ("ns", "m"), ("ies", "y"), ("ss", "ss")):
        if word.endswith(ending):
            return word.removesuffix(ending) + single
    return word.removesuffix("s")


def _length(found: Found) -> float:
    return min(max(found.seconds, 0.0) / LONG_ENOUGH, 1.0)


def _size(found: Found) -> float:
    return min(max(found.width * found.height, 0) / _LARGE_ENOUGH, 1.0)
