"""Detect the kind of a file from its content. Its name proves nothing."""

from __future__ import annotations

from typing import Literal

from retoma_apps.classifier.steps.reading.errors import Unreadable

Kind = Literal["pdf", "docx", "image", "text"]

_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", 0),
    (b"\xff\xd8\xff", 0),
    (b"II*\0", 0),
    (b"MM\0*", 0),
    (b"GIF8", 0),
    (b"WEBP", 8),
    (b"BM", 0),
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_OFFICE = "EncryptedPackage".encode("utf-16-le")
_OTHERS = (
    (b"{\\rtf", "rich text (RTF)"),
    (b"PK\x05\x06", "an empty zip"),
    (b"Rar!", "a RAR archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
)
_HEAD = 1024


def kind_of(data: bytes) -> Kind:
    """Return the kind. Raise Unreadable if it is not supported."""
    if not data.strip(b"\0\t\n\r "):
        raise Unreadable("the file is empty", "FILE_EMPTY")
    if b"%PDF-" in data[:_HEAD]:  # readers allow some bytes before it
        return "pdf"
    if data.startswith(b"PK\x03\x04"):
        return "docx"
    if any(data[at : at + len(mark)] == mark for mark, at in _IMAGES):
        return "image"
    _refuse_others(data)
    return "text"


def _refuse_others(data: bytes) -> None:
    if data.startswith(_OLE):
        if _ENCRYPTED_OFFICE in data:
            raise Unreadable("the document is protected with a password: send it without one", "FILE_ENCRYPTED")
        raise make_unsupported_error("an old Office document (.doc)")
    for mark, name in _OTHERS:
        if data.startswith(mark):
            raise make_unsupported_error(name)


def make_unsupported_error(description: str) -> Unreadable:
    return Unreadable(f"this is {description}; PDF, docx, images and plain text can be read", "FILE_UNSUPPORTED")
