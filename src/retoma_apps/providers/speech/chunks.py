"""A narration in pieces that a voice can say at once, and whether what came back can be all of it."""

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
"""Also any single letter, as it is somebody's initial."""
_PACES = {"pt": (65, 330), "en": (70, 350)}
_ANY_PACE = (60, 400)
"""Words a minute, from far slower than anybody reads aloud to far quicker."""
_PAUSES = 1.5
_SHORTEST = 0.2
"""Seconds that pauses may add, and that even one word takes."""
_MARKS = f"{_OPENING}{_CLOSING}.,;:!?…\u2013\u2014"


@dataclass(frozen=True)
class Piece:
    """What is said at once, and the number of the scene that it belongs to, from 0."""

    scene: int
    text: str


def split_into_pieces(scenes: Sequence[str], max_characters: int) -> list[Piece]:
    """Every scene in as few pieces of at most `most` characters as its sentences allow; none spans two scenes.

    A sentence that is longer is split at its commas, else between words. What has neither letters nor digits is left
    out. Raises SpeechRefused if one word alone is too long.
    """
    return [
        Piece(number, text)
        for number, scene in enumerate(scenes)
        for text in _pack(_split_scene(scene, max_characters), max_characters)
    ]


def split_sentences(text: str) -> list[str]:
    return _split(text, _END, _is_sentence_end)


def verify_length(text: str, seconds: float, language: str, rate: float = 1.0) -> None:
    """Raises ImplausibleLength if audio of this length cannot be this text: it was cut, is silence, or goes on."""
    words = [word for word in text.split() if has_words(word)]
    slowest, quickest = _PACES.get(language.lower().partition("-")[0], _ANY_PACE)
    shortest = max(len(words) * 60 / (quickest * rate), _SHORTEST if words else 0.0)
    longest = sum(map(_max_spoken_words, words)) * 60 / (slowest * rate) + _PAUSES
    if not shortest <= seconds <= longest:
        wrong = "short: it was cut" if seconds < shortest else "long: it is not this text, or most of it is silence"
        raise ImplausibleLength(
            f"{seconds:.1f} s of audio for {len(words)} words is too {wrong} "
            f"({shortest:.1f} to {longest:.1f} s are plausible)"
        )


def _split_scene(scene: str, max_characters: int) -> Iterator[str]:
    """Sentences, and of those that are too long their clauses or words."""
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
    """Not after an abbreviation or an initial, nor where what follows goes on in small letters."""
    before, after = text[:end], text[end:].lstrip()
    if "\n" in before[-1:]:
        return True
    last = _LAST_WORD.search(before[-40:])
    is_abbreviation = last is not None and _ABBREVIATIONS.fullmatch(last[1].lower().lstrip(_OPENING)) is not None
    return not is_abbreviation and not after[:1].islower()


def _max_spoken_words(word: str) -> int:
    """What is no plain word, such as 2.500, CDB or an address, may be said sign by sign."""
    plain = "".join(filter(str.isalnum, word))
    is_plain = plain.isalpha() and not plain.isupper() and word.strip(_MARKS) == plain
    return 1 if is_plain else len(word)
