"""Read the text of a docx: one member of a zip, with a parser that expands no entities."""

from __future__ import annotations

import io
from collections.abc import Iterable
from xml.parsers import expat

from retoma_apps.classifier.steps.reading.archives import open_archive
from retoma_apps.classifier.steps.reading.errors import Unreadable
from retoma_apps.classifier.steps.reading.kinds import make_unsupported_error
from retoma_apps.classifier.steps.reading.limits import Limits

BODY = "word/document.xml"
_NAMESPACES = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
_DEEPEST = 200
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n"}


class TextLimitReached(Exception):
    """Enough text was read."""


def docx_text(data: bytes, limits: Limits) -> str:
    """Return paragraphs as lines, up to about `limits.characters`, without deleted text, fields and comments."""
    with open_archive(io.BytesIO(data), limits) as archive:
        bodies = [info for info in archive.entries if info.filename == BODY]
        if not bodies:
            raise make_unsupported_error("a zip that is not a docx")
        return _Reader(limits.characters).read(archive.chunks(bodies[0]))


class _Reader:
    def __init__(self, max_characters: int) -> None:
        self._max_characters = max_characters
        self._length = 0
        self._parts: list[str] = []
        self._depth = 0
        self._is_text = False
        self._parser = _parser(self)

    def read(self, chunks: Iterable[bytes]) -> str:
        try:
            for chunk in chunks:
                self._parser.Parse(chunk, False)
            self._parser.Parse(b"", True)
        except TextLimitReached:
            pass
        except expat.ExpatError as error:
            raise Unreadable("the docx is damaged: its XML cannot be read", "FILE_DAMAGED") from error
        return "".join(self._parts)

    def begin(self, name: str, _: object) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Unreadable("the docx is damaged: its XML is nested too deeply", "FILE_DAMAGED")
        word = _local_name(name)
        self._is_text = word == "t"
        if word in _BREAKS:
            self._add(_BREAKS[word])

    def end(self, name: str) -> None:
        self._depth -= 1
        self._is_text = False
        if _local_name(name) == "p":
            self._add("\n")

    def characters(self, text: str) -> None:
        if self._is_text:
            self._add(text)

    def refuse(self, *_: object) -> None:
        """Reject a DTD: no word processor writes one, and every use of entities is an attack."""
        raise Unreadable("the docx is damaged: its XML declares a document type", "FILE_DAMAGED")

    def _add(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)
        if self._length > self._max_characters:
            raise TextLimitReached


def _parser(reader: _Reader) -> expat.XMLParserType:
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = reader.begin
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.EntityDeclHandler = reader.refuse
    return parser


def _local_name(name: str) -> str:
    """Return the element's name if it is in a word processor's namespace."""
    space, _, word = name.rpartition(" ")
    return word if space in _NAMESPACES else ""
