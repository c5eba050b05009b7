"""Count the spoken syllables of a word by spelling rules."""

from __future__ import annotations

import re

from retoma_apps.media.models import Language
from retoma_apps.providers.unicode_text import compose

_DIGIT = 2  # a digit's name has one or two in both languages; within a larger number, two
_PARTS = re.compile(r"[^\W\d_]+|\d")

_VOWELS = "aeiouyáàâãéêíóôõúü"
_WEAK = "iuyü"
_NASAL = ("ãe", "ão", "ãi", "õe")
_STRESSED = re.compile("[áâéêíóôú]")
_RUNS = re.compile(f"[{_VOWELS}]+")
_GLIDE = re.compile(f"(?<=[qg])[uü](?=[{_VOWELS}])")
_CLOSED = re.compile(f"nh|[lmnrz](?![{_VOWELS}h])")
_RISING = re.compile("[ieuo][aeo]")
_EXCEPTIONS = {"ao": 1, "aos": 1}

_SILENT = re.compile(r"^y(?=[aeiou])|(?<=[^aeiouy])(?:(?<![cgsxz])es|(?<![dt])ed|(?<!l)e|(?<=[aeiou]l)e)$")
_ENGLISH_RUNS = re.compile("[aeiouy]+")
_APART = re.compile(
    r"i(?:a(?!g)|o(?!n|us)|u|et)|(?<![cstgnl])ion|(?<![cstgx])ious|(?<=r)ien"
    r"|(?<=c)rea(?=t[ei])|(?<=[aeiou][^aeiou])ea(?=s?$)|eo(?!us|n|pl)|ua(?!r)|uo|[aeoy]ing"
)
_TOGETHER = re.compile(r"(?<=[ct])ia|(?<=[^s][cst])ie(?=nt|nc)|qua|quo|gua|^u")
_ENGLISH_EXCEPTIONS = {"lion": 2, "people": 2, "science": 2, "something": 2}


def count_syllables(word: str, language: Language) -> int:
    """Return at least one. Digits are counted roughly as they are read."""
    of_letters = _count_portuguese if language == "pt-BR" else _count_english
    parts = _PARTS.findall(compose(word.casefold()))
    return max(1, sum(_DIGIT if part.isdigit() else of_letters(part) for part in parts))


def _count_portuguese(word: str) -> int:
    if word in _EXCEPTIONS:
        return _EXCEPTIONS[word]
    sounded = _GLIDE.sub("", word)
    return max(1, sum(_count_nuclei(sounded, *run.span()) for run in _RUNS.finditer(sounded)))


def _count_nuclei(word: str, start: int, end: int) -> int:
    """Return the syllables of the vowels from `start` to `end`: one per vowel, except the second of a diphthong."""
    found, position = 0, start
    while position < end:
        found += 1
        position += 2 if position + 1 < end and _is_diphthong(word, position) else 1
    return found


def _is_diphthong(word: str, position: int) -> bool:
    pair, rest = word[position : position + 2], word[position + 2 :]
    if pair in _NASAL:
        return True
    if pair[1] in _WEAK:  # ai, eu, ui; but ra-inha, ju-iz, a-inda
        return pair[0] != pair[1] and not _CLOSED.match(rest)
    # histó-ria, á-rea: with an accent further left, the end is not stressed
    return rest in ("", "s") and bool(_RISING.match(pair)) and bool(_STRESSED.search(word[:position]))


def _count_english(word: str) -> int:
    """Count most words right; irregular English spelling is off by one."""
    if word in _ENGLISH_EXCEPTIONS:
        return _ENGLISH_EXCEPTIONS[word]
    heard = _SILENT.sub("", word) or word
    return max(1, len(_ENGLISH_RUNS.findall(heard)) + len(_APART.findall(_TOGETHER.sub("i", heard))))
