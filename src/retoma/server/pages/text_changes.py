"""Compare two texts word by word, and two lists entry by entry, with moved entries recognised. Pure."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby, islice
from typing import Any, Literal

# Results are untrusted: these limits keep every comparison below half a second, whatever it compares.
MAX_COMPARED_WORDS = 2_000  # of one text; a longer one is shown as replaced
MAX_ALIGNED_ENTRIES = 300  # of one list; the entries of a longer one are compared place by place
MAX_COMPARED_PAIRS = 10_000  # of entries that are compared to find the most similar ones
MAX_SIMILARITY_WORDS = 100  # of an entry, that decide whether it is similar to another
MIN_SIMILARITY = 0.5  # of two entries that are versions of each other
MAX_ISLAND_WORDS = 1  # unchanged words between two changes that are shown as changed too
_WORDS = re.compile(r"\s*\w+|\s*[^\w\s]|\s+$")

PieceKind = Literal["same", "add", "del"]


@dataclass(frozen=True)
class Piece:
    """A part of a text: unchanged, added or removed."""

    kind: PieceKind
    text: str


@dataclass(frozen=True)
class Pair:
    """The position of an entry in the previous list and in the current one, from 0. None: it is not in that list.

    It has moved if its order among the others has changed, not if only entries before it were added or removed.
    """

    before: int | None
    now: int | None
    is_moved: bool = False


def compare_texts(previous: str, current: str) -> tuple[Piece, ...]:
    """Return the pieces of both texts in reading order, with removed words before the added ones."""
    first, last = _split_words(previous), _split_words(current)
    if previous == current or max(len(first), len(last)) > MAX_COMPARED_WORDS:
        return _join([("same", current)] if previous == current else [("del", previous), ("add", current)])
    matcher = SequenceMatcher(None, first, last, autojunk=len(first) + len(last) > 1_000)
    return _join(_replace_islands(matcher.get_opcodes(), first, last))


def align_entries(previous: Sequence[Any], current: Sequence[Any]) -> list[Pair]:
    """Return the entries of both lists in the current order; removed ones follow the entry that they followed."""
    if max(len(previous), len(current)) > MAX_ALIGNED_ENTRIES:
        return _pair_by_place(len(previous), len(current))
    first, last = [_to_text(each) for each in previous], [_to_text(each) for each in current]
    partners = dict(_match_equal(first, last))
    partners |= _match_similar(first, last, partners)
    steady = _find_steady(sorted((now, before) for before, now in partners.items()))
    sources = {now: before for before, now in partners.items()}
    kept = [Pair(sources.get(now), now, now in sources and now not in steady) for now in range(len(last))]
    return _insert_removed(kept, [before for before in range(len(first)) if before not in partners])


def _split_words(text: str) -> list[str]:
    """Return the words, and one more than are compared if there are too many."""
    return [found[0] for found in islice(_WORDS.finditer(text), MAX_COMPARED_WORDS + 1)]


def _pair_by_place(before: int, now: int) -> list[Pair]:
    return [Pair(at if at < before else None, at if at < now else None) for at in range(max(before, now))]


def _replace_islands(
    codes: Iterable[tuple[str, int, int, int, int]], first: Sequence[str], last: Sequence[str]
) -> Iterator[tuple[PieceKind, str]]:
    """Yield the pieces; a single unchanged word between two changes is removed and added again: it reads better."""
    listed = list(codes)
    for at, (tag, i1, i2, j1, j2) in enumerate(listed):
        is_island = tag == "equal" and 0 < at < len(listed) - 1 and i2 - i1 <= MAX_ISLAND_WORDS
        if tag == "equal" and not is_island:
            yield "same", "".join(last[j1:j2])
            continue
        yield "del", "".join(first[i1:i2])
        yield "add", "".join(last[j1:j2])


def _join(pieces: Iterable[tuple[PieceKind, str]]) -> tuple[Piece, ...]:
    """Merge neighbours: within a change, all removed words come before all added ones."""
    joined: list[Piece] = []
    kinds: tuple[PieceKind, ...] = ("same", "del", "add")
    for _, group in groupby(pieces, key=lambda piece: piece[0] == "same"):
        parts = list(group)
        joined += [Piece(kind, "".join(part for one, part in parts if one == kind)) for kind in kinds]
    return tuple(piece for piece in joined if piece.text)


def _match_equal(first: Sequence[str], last: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the positions of equal entries, each once: those in order first, then those that moved."""
    taken: set[int] = set()
    matched: set[int] = set()
    for before, now, size in SequenceMatcher(None, first, last, autojunk=False).get_matching_blocks():
        for offset in range(size):
            taken.add(now + offset)
            matched.add(before + offset)
            yield before + offset, now + offset
    for before, text in enumerate(first):
        moved_to = next((at for at, other in enumerate(last) if at not in taken and other == text), None)
        if before not in matched and moved_to is not None:
            taken.add(moved_to)
            yield before, moved_to


def _match_similar(first: Sequence[str], last: Sequence[str], partners: dict[int, int]) -> dict[int, int]:
    """Return further positions: pairs of versions, the most similar ones first."""
    old = [at for at in range(len(first)) if at not in partners]
    new = [at for at in range(len(last)) if at not in set(partners.values())]
    if len(old) * len(new) > MAX_COMPARED_PAIRS:
        return {}
    words = {text: text.split(maxsplit=MAX_SIMILARITY_WORDS)[:MAX_SIMILARITY_WORDS] for text in {*first, *last}}
    scored = (
        (_similarity(words[first[before]], words[last[now]]), -abs(before - now), before, now)
        for before in old
        for now in new
    )
    found: dict[int, int] = {}
    for score, _, before, now in sorted(scored, reverse=True):
        if score >= MIN_SIMILARITY and before not in found and now not in found.values():
            found[before] = now
    return found


def _similarity(first: Sequence[str], last: Sequence[str]) -> float:
    """Return the share of words that both have, in any order."""
    return 2 * (Counter(first) & Counter(last)).total() / (len(first) + len(last) or 1)


def _find_steady(pairs: Sequence[tuple[int, int]]) -> set[int]:
    """Return the current positions of the longest series whose previous order is the current one: the others moved."""
    tails: list[int] = []
    chain: list[tuple[int, int | None]] = []  # of each pair: its length, and the pair before it in the series
    ends: list[int] = []
    for at, (_, before) in enumerate(pairs):
        length = bisect_left(tails, before)
        tails[length : length + 1] = [before]
        ends[length : length + 1] = [at]
        chain.append((length, ends[length - 1] if length else None))
    steady: set[int] = set()
    at_end = ends[-1] if ends else None
    while at_end is not None:
        steady.add(pairs[at_end][0])
        at_end = chain[at_end][1]
    return steady


def _insert_removed(kept: list[Pair], removed: Sequence[int]) -> list[Pair]:
    pairs = list(kept)
    for before in removed:
        at = next((place for place, pair in enumerate(pairs) if pair.before == before - 1), None)
        pairs.insert(0 if at is None else at + 1, Pair(before, None))
    return pairs


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
