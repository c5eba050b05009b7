"""Split a narration into pieces that a voice can speak at once, and check that the audio is complete."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from retoma_apps.providers.speech.errors import ImplausibleLength, SpeechRefused
from retoma_apps.providers.speech.texts import has_words

_OPENING = "([\"'\u201c\u2018«"
_CLOSING = "\"'\u201d\u2019»)\\]"
_END = re.compile(rf"(?<![.!?…])[.!?…]++[{_CLOSING}]*+(?=\s)|\n\s*\n")
_CLAUSE = re.compile(r"[,;:\u2013\u2014](?=\s)")
_LAST_WORD = re.compile(r"(\S+)\.$")
_ABBREVIATIONS = re.compile(
    r"(sr|sra|srs|srta|dr|dra|prof|profa|exmo|exma|av|al|art|cap|cia|dep|eng|fig|gov|ltda|min|nº|núm|obs|op|pág|págs"
    r"|pres|sec|séc|sto|sta|tel|vol|ex|p\.ex|mr|mrs|ms|jr|st|vs|inc|co|gen|rep|sen|approx|dept|e\.g|i\.e|[^\W\d_])"
)
"""Any single letter counts too, as an initial."""
_PACES = {"pt": (65, 330), "en": (70, 350)}
_ANY_PACE = (60, 400)
"""Words per minute, from far slower than anyone reads aloud to far faster."""
_PAUSES = 1.5
_SHORTEST = 0.2
"""Seconds that pauses may add, and the shortest time for one word."""
_MARKS = f"{_OPENING}{_CLOSING}.,;:!?…\u2013\u2014"


@dataclass(frozen=True)
class Piece:
    """A text to speak at once, and the number of its scene, from 0."""

    scene: int
    text: str


def split_into_pieces(scenes: Sequence[str], max_characters: int) -> list[Piece]:
    """Split each scene into as few pieces of at most `max_characters` as its sentences allow; none spans two scenes.

    A longer sentence is split at its commas, else between words. Pieces without letters or digits are left out. Raise
    SpeechRefused if a single word is too long.
    """
    return [
        Piece(number, text)
        for number, scene in enumerate(scenes)
        for text in _pack(_split_scene(scene, max_characters), max_characters)
    ]


def split_sentences(text: str) -> list[str]:
    return _split(text, _END, _is_sentence_end)


def verify_length(text: str, seconds: float, language: str, rate: float = 1.0) -> None:
    """Raise ImplausibleLength if audio of this length cannot be this text: truncated, silent, or too long."""
    words = [word for word in text.split() if has_words(word)]
    slowest, quickest = _PACES.get(language.lower().partition("-")[0], _ANY_PACE)
    shortest = max(len(words) * 60 / (quickest * rate), _SHORTEST if words else 0.0)
    longest = sum(map(_max_spoken_words, words)) * 60 / (slowest * rate) + _PAUSES
    if not shortest <= seconds <= longest:
        wrong = "short: it was truncated" if seconds < shortest else "long: it is another text, or mostly silence"
        raise ImplausibleLength(
            f"{seconds:.1f} s of audio for {len(words)} words is too {wrong} "
            f"({shortest:.1f} to {longest:.1f} s are plausible)"
        )


def _split_scene(scene: str, max_characters: int) -> Iterator[str]:
    """Yield the sentences; of those that are too long, the clauses or words."""
    for sentence in split_sentences(scene):
        if len(sentence) <= max_characters:
            yield sentence
            continue
        for clause in _split(sentence, _CLAUSE):
            yield from [clause] if len(clause) <= max_characters else clause.split()


def _pack(parts: Iterable[str], max_characters: int) -> Iterator[str]:
    packed = ""
    for part in parts:
        if len(part) > max_characters:
            raise SpeechRefused(
                f"one word has more than {max_characters} characters: {part[:40]!r}...", "SPEECH_TOO_LONG"
            )
        longer = f"{packed} {part}" if packed else part
        if len(longer) > max_characters and has_words(packed):
            yield packed
        packed = longer if len(longer) <= max_characters else part
    if has_words(packed):
        yield packed


def _split(text: str, at: re.Pattern[str], is_boundary: Callable[[str, int], bool] = lambda *_: True) -> list[str]:
    ends = [found.end() for found in at.finditer(text) if is_boundary(text, found.end())]
    parts = [text[start:end].strip() for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    return [part for part in parts if part]


def _is_sentence_end(text: str, end: int) -> bool:
    """Return False after an abbreviation or an initial, and if a lower-case letter follows."""
    before, after = text[:end], text[end:].lstrip()
    if "\n" in before[-1:]:
        return True
    last = _LAST_WORD.search(before[-40:])
    is_abbreviation = last is not None and _ABBREVIATIONS.fullmatch(last[1].lower().lstrip(_OPENING)) is not None
    return not is_abbreviation and not after[:1].islower()


def _max_spoken_words(word: str) -> int:
    """Return how many words a voice may say for it: 2.500, CDB or a URL may be spelled out character by character."""
    plain = "".join(filter(str.isalnum, word))
    is_plain = plain.isalpha() and not plain.isupper() and word.strip(_MARKS) == plain
    return 1 if is_plain else len(word)
