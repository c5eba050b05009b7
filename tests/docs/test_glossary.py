"""The Portuguese terms of the glossary are those of the pages."""

from __future__ import annotations

import re
from pathlib import Path

from babel.messages.pofile import read_po

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT / "src/retoma/locale/pt_BR/LC_MESSAGES/retoma.po"
NOT_ON_PAGES = {"efeito"}
STEM = 5  # letters that all forms of a word share: derivar, derivada


def read_glossary() -> dict[str, list[str]]:
    """Return the Portuguese words by term."""
    text = (ROOT / "docs" / "concepts.md").read_text().partition("## Glossary")[2]
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE)
    return {term: re.findall(r"\*([^*]+)\*", where) for term, where in rows if set(term) != {"-"}}


def read_catalogue() -> dict[str, set[str]]:
    """Return the translations by message, in lower case: one in each context; of a plural message, its singular."""
    with CATALOGUE.open("rb") as file:
        messages = [message for message in read_po(file) if message.id]
    found: dict[str, set[str]] = {}
    for each in messages:
        english, portuguese = (part if isinstance(part, str) else (part or [""])[0] for part in (each.id, each.string))
        found.setdefault(english.lower(), set()).add(portuguese.lower())
    return found


def test_a_term_that_is_a_message_is_translated_as_in_the_glossary() -> None:
    catalogue = read_catalogue()
    shared = {term: words for term, words in read_glossary().items() if term in catalogue}
    assert {"tenant", "step", "dead letter"} <= shared.keys()
    assert {term: catalogue[term] for term, words in shared.items() if catalogue[term].isdisjoint(words)} == {}


def test_every_portuguese_word_of_the_glossary_is_on_a_page() -> None:
    said = " ".join(translation for translations in read_catalogue().values() for translation in translations)
    words = {word for terms in read_glossary().values() for term in terms for word in term.split() if len(word) > 2}
    assert len(words) > 30
    assert {word for word in words - NOT_ON_PAGES if not re.search(rf"\b{word[:STEM]}", said)} == set()
