"""Split the narration into subtitles: at most two rows of 42 characters, for one to six seconds, cut between words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from textwrap import wrap
from typing import NamedTuple

from retoma_apps.media.models import Line
from retoma_apps.media.narration import Joined
from retoma_apps.providers.speech.port import Word

MAX_ROW_CHARACTERS = 42
MAX_ROWS = 2
MIN_SECONDS, MAX_SECONDS = 1.0, 6.0
_SENTENCE_END = re.compile(r"[.!?…][\"'”\u2019»)\]]*$")
_CLAUSE_END = re.compile(r"[,;:—][\"'”\u2019»)\]]*$")
_PAUSE = re.compile(r"[,;:.!?…—]")
CUT_COST, GROUP_COST = 1.0, 0.25  # of a cut within a clause, and of each subtitle; one that is twice as long costs 1

Group = list[Word]


class _Split(NamedTuple):
    """A sentence as subtitles, and how bad that is to read."""

    cost: float
    groups: list[Group]


@dataclass
class _TimedText:
    text: str
    start: float
    end: float


def build_subtitle_lines(
    texts: Sequence[str],
    words: Sequence[Sequence[Word]],
    joined: Joined,
    *,
    scenes: Sequence[int] | None = None,
) -> list[Line]:
    """Return the subtitles of all pieces. Without word timings, a piece's words are timed by their letters.

    A subtitle stays for at least a second if the next one leaves the time. `scenes` has the scene number of each piece;
    without it no subtitle spans two pieces.
    """
    timed = [
        _place_words(timings, start, end) if timings else _guess_times(text, start, end)
        for text, timings, start, end in zip(texts, words, joined.starts, joined.ends, strict=True)
    ]
    subtitles: list[_TimedText] = []
    for _, scene in groupby(zip(scenes or range(len(timed)), timed, strict=True), key=itemgetter(0)):
        sentences = [sentence for _, piece in scene for sentence in _sentences(piece)]
        groups = _merge_short([group for sentence in sentences for group in _split_evenly(sentence)])
        subtitles += [_TimedText(_wrap_rows(_text(group)), group[0].start, group[-1].end) for group in groups]
    _extend_times(subtitles, joined.seconds)
    return [Line(text=one.text, start=round(one.start, 3), end=round(one.end, 3)) for one in subtitles]


def _place_words(words: Sequence[Word], start: float, end: float) -> list[Word]:
    """Keep the timings, but within the piece and in order."""
    placed: list[Word] = []
    at = start
    for word in words:
        at = min(max(at, start + word.start), end)
        placed += _split_word(word.text, at, min(max(at, start + word.end), end))
    return placed


def _guess_times(text: str, start: float, end: float) -> list[Word]:
    words = text.split()
    weights = [len(word) + 1 + 4 * len(_PAUSE.findall(word[-1])) + 4 * sum(map(str.isdigit, word)) for word in words]
    placed: list[Word] = []
    total, passed = sum(weights), 0
    for word, weight in zip(words, weights, strict=True):
        word_start = start + (end - start) * passed / total
        passed += weight
        placed += _split_word(word, word_start, start + (end - start) * passed / total)
    return placed


def _split_word(text: str, start: float, end: float) -> Iterator[Word]:
    """Yield a word without line breaks; one too long for a row is split."""
    plain = "".join(text.split())
    parts = [plain[at : at + MAX_ROW_CHARACTERS] for at in range(0, len(plain), MAX_ROW_CHARACTERS)]
    share = (end - start) / max(len(parts), 1)
    return (Word(part, start + share * at, start + share * (at + 1)) for at, part in enumerate(parts))


def _sentences(words: Sequence[Word]) -> Iterator[Group]:
    sentence: Group = []
    for word in words:
        sentence.append(word)
        if _SENTENCE_END.search(word.text):
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _split_evenly(sentence: Group) -> list[Group]:
    """Return as few groups as fit, of about equal length, so no word is left alone at the end. They end where a speaker
    pauses if that needs no more than one group more: a number should not be cut in two."""
    fewest = len(_split_greedily(sentence))
    if fewest == 1:
        return [sentence]
    longest = [_count_fitting(sentence[start:]) for start in range(len(sentence))] + [0]
    splits = [split for count in (fewest, fewest + 1) if (split := _find_best_split(sentence, count, longest))]
    return min(splits, key=lambda split: split.cost).groups


def _find_best_split(sentence: Group, count: int, longest: Sequence[int]) -> _Split | None:
    """Return the split into so many groups that costs least. `longest` is how many words fit from each word on."""
    even = len(_text(sentence)) / count
    best = {0: _Split(0.0, [])}  # by the number of words
    for _ in range(count):
        longer: dict[int, _Split] = {}
        for start, split in best.items():
            for end in range(start + 1, start + longest[start] + 1):
                group = sentence[start:end]
                is_cut = end < len(sentence) and not _CLAUSE_END.search(group[-1].text)
                cost = split.cost + GROUP_COST + CUT_COST * is_cut + (len(_text(group)) / even - 1) ** 2
                if end not in longer or cost < longer[end].cost:
                    longer[end] = _Split(cost, [*split.groups, group])
        best = longer
    return best.get(len(sentence))


def _count_fitting(words: Group) -> int:
    """Return how many of the first words fit: at least one."""
    return next((count - 1 for count in range(2, len(words) + 1) if not _fits(words[:count])), len(words))


def _split_greedily(sentence: Group) -> list[Group]:
    groups: list[Group] = []
    for word in sentence:
        if groups and _fits([*groups[-1], word]):
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def _merge_short(groups: list[Group]) -> list[Group]:
    """Merge sentences that are too short to read with a neighbour."""
    merged: list[Group] = []
    for group in groups:
        if merged and (_is_short(group) or _is_short(merged[-1])) and _fits([*merged[-1], *group]):
            merged[-1] = [*merged[-1], *group]
        else:
            merged.append(group)
    return merged


def _is_short(group: Group) -> bool:
    return group[-1].end - group[0].start < MIN_SECONDS


def _fits(group: Group) -> bool:
    return group[-1].end - group[0].start <= MAX_SECONDS and len(wrap(_text(group), MAX_ROW_CHARACTERS)) <= MAX_ROWS


def _text(group: Group) -> str:
    return " ".join(word.text for word in group)


def _wrap_rows(text: str) -> str:
    """Wrap into rows of about equal width."""
    attempts = (
        wrap(text, width) for width in range(min(MAX_ROW_CHARACTERS, len(text) // MAX_ROWS + 1), MAX_ROW_CHARACTERS + 1)
    )
    fewest = len(wrap(text, MAX_ROW_CHARACTERS))
    return "\n".join(next(rows for rows in attempts if len(rows) == fewest))


def _extend_times(subtitles: list[_TimedText], seconds: float) -> None:
    for one, following in pairwise([*subtitles, _TimedText("", seconds, seconds)]):
        one.end = min(max(one.end, one.start + MIN_SECONDS), one.start + MAX_SECONDS, following.start)
    for before, one in pairwise(subtitles):
        if one.end - one.start < MIN_SECONDS:
            one.start = max(one.end - MIN_SECONDS, min(before.start + MIN_SECONDS, one.start))
            before.end = min(before.end, one.start)
