"""What was said as subtitles: two rows of 42 characters at most, for one to six seconds, cut between words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from textwrap import wrap

from retoma_apps.providers.speech.port import Word
from retoma_apps.videos.media.narration import Joined
from retoma_apps.videos.models import Line

ROW = 42
ROWS = 2
SHORTEST, LONGEST = 1.0, 6.0
_SENTENCE_END = re.compile(r"[.!?…][\"'”\u2019»)\]]*$")
_PAUSE = re.compile(r"[,;:.!?…—]")

Group = list[Word]


@dataclass
class _Shown:
    text: str
    start: float
    end: float


def lines(
    texts: Sequence[str],
    words: Sequence[Sequence[Word]],
    joined: Joined,
    *,
    scenes: Sequence[int] | None = None,
) -> list[Line]:
    """Of all pieces in turn. A piece without timings of its words has them by the letters of each.

    A line stays up to a second even if its words were quicker, where the next one leaves it the time. `scenes` has the
    number of each piece's scene; without it no line spans two pieces.
    """
    timed = [
        _placed(told, start, end) if told else _guessed(text, start, end)
        for text, told, start, end in zip(texts, words, joined.starts, joined.ends, strict=True)
    ]
    shown: list[_Shown] = []
    for _, scene in groupby(zip(scenes or range(len(timed)), timed, strict=True), key=itemgetter(0)):
        groups = _merged([group for _, piece in scene for group in _groups(piece)])
        shown += [_Shown(_rows(_text(group)), group[0].start, group[-1].end) for group in groups]
    _give_time(shown, joined.seconds)
    return [Line(text=one.text, start=round(one.start, 3), end=round(one.end, 3)) for one in shown]


def _placed(told: Sequence[Word], start: float, end: float) -> list[Word]:
    """As told, but never outside its piece nor before the word before it."""
    placed: list[Word] = []
    at = start
    for word in told:
        at = min(max(at, start + word.start), end)
        placed += _pieces(word.text, at, min(max(at, start + word.end), end))
    return placed


def _guessed(text: str, start: float, end: float) -> list[Word]:
    words = text.split()
    weights = [len(word) + 1 + 4 * len(_PAUSE.findall(word[-1])) + 4 * sum(map(str.isdigit, word)) for word in words]
    placed: list[Word] = []
    total, passed = sum(weights), 0
    for word, weight in zip(words, weights, strict=True):
        began = start + (end - start) * passed / total
        passed += weight
        placed += _pieces(word, began, start + (end - start) * passed / total)
    return placed


def _pieces(text: str, start: float, end: float) -> Iterator[Word]:
    """A word, without what would break a line; one too long for a row comes in parts."""
    plain = "".join(text.split())
    parts = [plain[at : at + ROW] for at in range(0, len(plain), ROW)]
    share = (end - start) / max(len(parts), 1)
    return (Word(part, start + share * at, start + share * (at + 1)) for at, part in enumerate(parts))


def _groups(words: Sequence[Word]) -> list[Group]:
    return [group for sentence in _sentences(words) for group in _evenly(sentence)]


def _sentences(words: Sequence[Word]) -> Iterator[Group]:
    sentence: Group = []
    for word in words:
        sentence.append(word)
        if _SENTENCE_END.search(word.text):
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _evenly(sentence: Group) -> list[Group]:
    """As few groups as fit, of about the same length, so that no word is left alone at the end."""
    fewest = _cut(sentence, ROW * ROWS)
    shortest = len(_text(sentence)) // len(fewest)
    tries = (_cut(sentence, most) for most in range(shortest, ROW * ROWS))
    return next((groups for groups in tries if len(groups) == len(fewest)), fewest)


def _cut(sentence: Group, most: int) -> list[Group]:
    groups: list[Group] = []
    for word in sentence:
        if groups and len(_text([*groups[-1], word])) <= most and _fits([*groups[-1], word]):
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def _merged(groups: list[Group]) -> list[Group]:
    """Sentences too short to be read go with the one before or after."""
    merged: list[Group] = []
    for group in groups:
        if merged and (_brief(group) or _brief(merged[-1])) and _fits([*merged[-1], *group]):
            merged[-1] = [*merged[-1], *group]
        else:
            merged.append(group)
    return merged


def _brief(group: Group) -> bool:
    return group[-1].end - group[0].start < SHORTEST


def _fits(group: Group) -> bool:
    return group[-1].end - group[0].start <= LONGEST and len(wrap(_text(group), ROW)) <= ROWS


def _text(group: Group) -> str:
    return " ".join(word.text for word in group)


def _rows(text: str) -> str:
    """In rows of about the same width."""
    tries = (wrap(text, width) for width in range(min(ROW, len(text) // ROWS + 1), ROW + 1))
    fewest = len(wrap(text, ROW))
    return "\n".join(next(rows for rows in tries if len(rows) == fewest))


def _give_time(shown: list[_Shown], seconds: float) -> None:
    for one, following in pairwise([*shown, _Shown("", seconds, seconds)]):
        one.end = min(max(one.end, one.start + SHORTEST), one.start + LONGEST, following.start)
    for before, one in pairwise(shown):
        if one.end - one.start < SHORTEST:
            one.start = max(one.end - SHORTEST, min(before.start + SHORTEST, one.start))
            before.end = min(before.end, one.start)
