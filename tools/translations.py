"""Bring the gettext catalogues up to date with the strings in the code and the templates.

    python tools/translations.py

adds new strings without a translation, drops those that are no longer used, and creates missing catalogues. The test of
the translations (`tests/server/pages/test_translations.py`) fails until every string is translated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_dir
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parent.parent
LANGUAGE = "pt_BR"
METHODS = [("**.py", "python"), ("**/templates/**.html", "jinja2.ext:babel_extract")]
OPTIONS = {"**/templates/**.html": {"newstyle_gettext": "true", "silent": "false", "extensions": "jinja2.ext.i18n"}}
KEYWORDS: dict[str, Any] = {**DEFAULT_KEYWORDS, "NP_": ((1, "c"), 2)}
_HEADER = f"""\
msgid ""
msgstr ""
"Language: {LANGUAGE}\\n"
"Plural-Forms: nplurals=2; plural=(n > 1);\\n"
"Content-Type: text/plain; charset=utf-8\\n"

"""
_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%|%")


@dataclass(frozen=True)
class Domain:
    """The strings of one `folder` and the catalogue that translates them."""

    name: str
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "locale" / LANGUAGE / "LC_MESSAGES" / f"{self.name}.po"

    def read(self) -> Catalog:
        """Return the catalogue, which is empty until its file exists."""
        if not self.file.exists():
            return Catalog(LANGUAGE)
        with self.file.open("rb") as source:
            return read_po(source, locale=LANGUAGE)

    def extract(self) -> Catalog:
        """Return the strings that are in the code and the templates now, each with the files that have it."""
        found = Catalog(domain=self.name)
        extracted = extract_from_dir(self.folder, METHODS, OPTIONS, keywords=KEYWORDS)
        for path, _, text, comments, context in sorted(extracted, key=lambda each: each[0]):
            file = f"{self.folder.name}/{Path(path).as_posix()}"
            known = found.get(text if isinstance(text, str) else text[0], context)
            if known is None or file not in [where for where, _ in known.locations]:
                found.add(text, None, [(file, 0)], auto_comments=comments, context=context)
        return found


DOMAINS = (
    Domain("retoma", ROOT / "src/retoma"),
    *(Domain(each.parent.name, each.parent) for each in sorted((ROOT / "src/retoma_apps").glob("*/application.py"))),
)


def list_problems(domain: Domain) -> Iterator[str]:
    """Name each string that lacks a translation, is not used any more, or has other placeholders when translated."""
    used, known = domain.extract(), domain.read()
    for message in _strings(used):
        translated = known.get(message.id, message.context)
        if translated is None or not all(_texts(translated.string)) or translated.fuzzy:
            yield f"{domain.name}: {message.id!r} is not translated"
        elif not _same_placeholders(translated):
            yield f"{domain.name}: the translation of {message.id!r} has other placeholders: {translated.string!r}"
    for message in _strings(known):
        if used.get(message.id, message.context) is None:
            yield f"{domain.name}: {message.id!r} is translated but not used"
    yield from (f"{domain.name}: {text!r} is obsolete" for text in known.obsolete)


def update(domain: Domain) -> None:
    catalogue = domain.read()
    catalogue.update(domain.extract(), no_fuzzy_matching=True)
    catalogue.obsolete.clear()
    write(domain, catalogue)


def write(domain: Domain, catalogue: Catalog) -> None:
    """Write a catalogue that changes only where a string does: without dates and line numbers."""
    domain.file.parent.mkdir(parents=True, exist_ok=True)
    with domain.file.open("wb") as target:
        target.write(_HEADER.encode())
        write_po(target, catalogue, width=110, include_lineno=False, sort_output=True, omit_header=True)


def _strings(catalogue: Catalog) -> list[Message]:
    return [message for message in catalogue if message.id]


def _texts(text: Any) -> tuple[str, ...]:
    return (text,) if isinstance(text, str) else tuple(text)


def _same_placeholders(message: Message) -> bool:
    """A plural may leave out the number in its singular form, and no form may have another placeholder."""
    wanted = {name for text in _texts(message.id) for name in _PLACEHOLDER.findall(text)}
    for number, text in enumerate(_texts(message.string)):
        found = set(_PLACEHOLDER.findall(text))
        if found - wanted or (number == len(_texts(message.string)) - 1 and found != wanted):
            return False
    return True


if __name__ == "__main__":
    for each in DOMAINS:
        update(each)
