"""Find short noun phrases in a text, for footage searches and thumbnails.

A noun is recognised by the article or preposition before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from retoma_apps.media.models import Language
from retoma_apps.media.spoken_text import fold

_LONGEST = 60
_BEFORE = {
    "pt-BR": r"(?:os?|as?|uma?|uns|umas|d[aeo]s?|n[ao]s?|em|com|sem|pel[ao]s?|sobre|seus?|suas?)",
    "en": r"(?:the|an?|of|in|on|with|without|from|into|about|its|their|your)",
}
_JOIN = {"pt-BR": r"d(?:e|[ao]s?)", "en": r"of(?: the)?"}
_STOP_WORDS = frozenset(
    fold(word)
    for word in re.findall(
        r"\w+",
        "o a os as um uma uns umas de da do das dos em no na nos nas com sem por pelo pela para que e ou é são foi ser "
        "está estão tem têm há ao aos à às se mais menos muito todo toda todos todas isso isto este esta esse essa seu "
        "sua seus suas como quando onde porque não já também só até entre sobre cada outro outra qual quem vez dia "
        "the an of in on at to for from with without by and or is are was were be been has have had it its this that "
        "these those not no can may more most very all each other one your their our you they we how what why when "
        "where who which about into than then as so if but do does way time made make "
        "makes feito feita feitos feitas faz fazer",
    )
)


def noun_phrases(text: str, language: Language) -> list[str]:
    """Return the longest first, and of equal length the earliest."""
    found = {fold(phrase): phrase for phrase in _candidates(text, language) if len(phrase) <= _LONGEST}
    return sorted(found.values(), key=lambda phrase: -len(content_words(phrase)))


def content_words(text: str) -> list[str]:
    """Return the words that carry meaning, in order."""
    return [word for word in re.findall(r"[^\W_]+", text) if is_content(word)]


def is_content(word: str) -> bool:
    return len(word) > 2 and fold(word) not in _STOP_WORDS and not word.isdigit()


def _candidates(text: str, language: Language) -> Iterator[str]:
    noun = r"[^\W\d_]{3,}(?:-[^\W\d_]+)*"
    pattern = rf"\b{_BEFORE[language]} (?P<first>{noun})(?P<join> {_JOIN[language]} (?P<second>{noun}))?"
    for match in re.finditer(pattern, text, re.IGNORECASE):
        if not is_content(match["first"]):
            continue
        whole = match["second"] and is_content(match["second"])
        yield (match["first"] + match["join"] if whole else match["first"]).lower()
