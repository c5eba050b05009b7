"""Translations of what people read on pages and in the terminal, from gettext catalogues.

The source strings are the English ones in the code and the templates, with `%(name)s` for values. The catalogues are
`<folder>/pt_BR/LC_MESSAGES/*.po`. They are compiled in memory, once per process, so no binary file is ever out of date.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from gettext import GNUTranslations, NullTranslations
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import escape

LANGUAGES = ("en", "pt")
LOCALES = {"en": "en", "pt": "pt_BR"}
CATALOGUES = Path(__file__).parent / "locale"


class Message(NamedTuple):
    """A source string with the context that tells it from the same word with another meaning."""

    context: str
    text: str


def N_(message: str) -> str:  # noqa: N802  (the name by which gettext tools know it)
    """Mark a source string that `Translator.translate` translates later."""
    return message


def NP_(context: str, message: str) -> Message:  # noqa: N802  (like `N_`)
    """Mark a source string with its context."""
    return Message(context, message)


class Translator:
    """Translates into one language. The first of the `folders` that has a string wins; without any it stays English."""

    def __init__(self, language: str, folders: Sequence[Path] = (CATALOGUES,)) -> None:
        self.language = language
        self._catalogue = _load_catalogues(language, tuple(folders))

    def gettext(self, message: str, /, **values: Any) -> str:
        return _format(self._catalogue.gettext(message), values)

    def ngettext(self, singular: str, plural: str, number: int, /, **values: Any) -> str:
        """`number` chooses the form; the text shows what `values` has, such as the formatted number."""
        return _format(self._catalogue.ngettext(singular, plural, number), {"num": number, **values})

    def pgettext(self, context: str, message: str, /, **values: Any) -> str:
        return _format(self._catalogue.pgettext(context, message), values)

    def translate(self, message: str | Message, /, **values: Any) -> str:
        """Translate a string that `N_` or `NP_` marked."""
        if isinstance(message, Message):
            return self.pgettext(message.context, message.text, **values)
        return self.gettext(message, **values)


def _format(text: str, values: dict[str, Any]) -> str:
    """Return HTML if a value is HTML, with the rest escaped; otherwise plain text."""
    if not values:
        return text  # in which `%` is a character like any other
    if any(hasattr(each, "__html__") for each in values.values()):
        return escape(text) % values
    return text % values


@cache
def _load_catalogues(language: str, folders: tuple[Path, ...]) -> NullTranslations:
    found = NullTranslations()
    for folder in reversed(folders):
        for file in sorted((folder / LOCALES[language] / "LC_MESSAGES").glob("*.po")):
            catalogue = _compile_catalogue(file)
            catalogue.add_fallback(found)
            found = catalogue
    return found


def _compile_catalogue(file: Path) -> GNUTranslations:
    # Only a language other than English needs Babel here, and a command of the terminal should start fast.
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    compiled = BytesIO()
    with file.open("rb") as source:
        write_mo(compiled, read_po(source))
    compiled.seek(0)
    return GNUTranslations(compiled)
