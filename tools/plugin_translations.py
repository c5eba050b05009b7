"""Bring the catalogue of the WordPress plugin up to date with the strings in its code, and compile it.

    python tools/plugin_translations.py

adds new strings without a translation, drops those that are no longer used, and writes the `.mo` file that WordPress
reads. The test of the plugin's translations (`tests/wordpress/test_translations.py`) fails until all are translated.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.mofile import read_mo, write_mo
from babel.messages.pofile import read_po, write_po

PLUGIN = Path(__file__).parent.parent / "wordpress" / "autowriter"
LANGUAGE = "pt_BR"
SOURCE = PLUGIN / "languages" / f"autowriter-{LANGUAGE}.po"
COMPILED = SOURCE.with_suffix(".mo")
_TEXT = r"'((?:[^'\\]|\\.)*)'"
_CALL = re.compile(rf"\b(?:__|esc_html__|esc_html_e|esc_attr__)\(\s*{_TEXT},\s*'autowriter'\s*\)")
_PLURAL = re.compile(rf"\b_n\(\s*{_TEXT},\s*{_TEXT},[^,]+,\s*'autowriter'\s*\)")
_DESCRIPTION = re.compile(r"^ \* Description:\s+(.+)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"%(?:\d\$)?[sd]")
_HEADER = f"""\
msgid ""
msgstr ""
"Language: {LANGUAGE}\\n"
"Plural-Forms: nplurals=2; plural=(n > 1);\\n"
"Content-Type: text/plain; charset=utf-8\\n"

"""


def extract() -> Catalog:
    """Return the strings that are in the code now, each with the files that have it."""
    found = Catalog(domain="autowriter")
    for file in sorted(PLUGIN.rglob("*.php")):
        text, name = file.read_text(), file.relative_to(PLUGIN).as_posix()
        for message in [*_CALL.findall(text), *_DESCRIPTION.findall(text), *_PLURAL.findall(text)]:
            found.add(message, None, [(name, 0)])
    return found


def read() -> Catalog:
    with SOURCE.open("rb") as source:
        return read_po(source, locale=LANGUAGE)


def is_compiled() -> bool:
    """Return whether the `.mo` file has the current translations. Its header, with dates, does not matter."""
    if not COMPILED.exists():
        return False
    with COMPILED.open("rb") as compiled:
        return _list_translations(read_mo(compiled)) == _list_translations(read())


def list_problems() -> Iterator[str]:
    """Name each string that lacks a translation, is not used any more, or has other placeholders when translated."""
    used, known = extract(), read()
    for message in filter(lambda each: each.id, used):
        translated = known.get(message.id)
        texts = [] if translated is None else _texts(translated.string)
        if not texts or not all(texts):
            yield f"{message.id!r} is not translated"
        elif any(_placeholders(each) != _placeholders(_texts(message.id)[-1]) for each in texts):
            yield f"the translation of {message.id!r} has other placeholders"
    yield from (f"{each.id!r} is translated but not used" for each in known if each.id and used.get(each.id) is None)
    if not is_compiled():
        yield f"{COMPILED.name} is not what {SOURCE.name} compiles to"


def update() -> None:
    catalogue = read() if SOURCE.exists() else Catalog(LANGUAGE)
    catalogue.update(extract(), no_fuzzy_matching=True)
    catalogue.obsolete.clear()
    for message in catalogue:
        message.flags.discard("python-format")
    with SOURCE.open("wb") as target:
        target.write(_HEADER.encode())
        write_po(target, catalogue, width=110, include_lineno=False, sort_output=True, omit_header=True)
    if not is_compiled():
        COMPILED.write_bytes(compile_catalogue(read()))


def compile_catalogue(catalogue: Catalog) -> bytes:
    """Return a `.mo` file. WordPress takes the address of its hash table for the end of its index."""
    target = io.BytesIO()
    write_mo(target, catalogue)
    content = bytearray(target.getvalue())
    (translations,) = struct.unpack_from("<I", content, 16)
    (total,) = struct.unpack_from("<I", content, 8)
    struct.pack_into("<I", content, 24, translations + 8 * total)
    return bytes(content)


def _list_translations(catalogue: Catalog) -> dict[str, list[str]]:
    return {_texts(message.id)[0]: _texts(message.string) for message in catalogue if message.id}


def _texts(text: object) -> list[str]:
    return [text] if isinstance(text, str) else list(text) if isinstance(text, tuple | list) else []


def _placeholders(text: str) -> list[str]:
    return sorted(_PLACEHOLDER.findall(text))


if __name__ == "__main__":
    update()
