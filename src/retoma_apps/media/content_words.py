"""Find the words of a text that carry meaning."""

from __future__ import annotations

import re

from retoma_apps.media.spoken_text import fold

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


def content_words(text: str) -> list[str]:
    """Return the words that carry meaning, in order."""
    return [word for word in re.findall(r"[^\W_]+", text) if is_content(word)]


def is_content(word: str) -> bool:
    return len(word) > 2 and fold(word) not in _STOP_WORDS and not word.isdigit()
