"""The text of a document, whatever it is."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import assert_never

from retoma_apps.classifier.reading.docx import docx_text
from retoma_apps.classifier.reading.errors import Unreadable
from retoma_apps.classifier.reading.images import image_texts
from retoma_apps.classifier.reading.kinds import Kind, kind_of
from retoma_apps.classifier.reading.limits import Limits
from retoma_apps.classifier.reading.ocr import FindOcr, Ocr, installed_ocr
from retoma_apps.classifier.reading.pdf import pdf_text
from retoma_apps.classifier.reading.plain import clean_text, plain_text

DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Reading:
    """`is_cut` says that there was more text, or scanned pages that were not read."""

    text: str
    kind: Kind
    pages: int = 1
    ocr_pages: int = 0
    is_truncated: bool = False


def read_path(path: str, limits: Limits = DEFAULT_LIMITS) -> Reading:
    """As `read`, of a file of this machine. Made for an isolated step: it needs no network and no environment."""
    with open(path, "rb", opener=_open_regular_file) as file:
        _check_size(os.fstat(file.fileno()).st_size, limits)
        return read(file.read(limits.bytes + 1), limits)


def read(data: bytes, limits: Limits = DEFAULT_LIMITS, ocr: Ocr | None = None) -> Reading:
    """The text, and how it was found. Raises Unreadable, with a code that says why.

    Without `ocr` that of this machine is used, if it is installed.
    """
    _check_size(len(data), limits)
    reading = _read(data, kind_of(data), limits, (lambda: ocr) if ocr else installed_ocr)
    if not reading.text:
        raise Unreadable("no text was found in the file", "FILE_EMPTY")
    return reading


def _open_regular_file(path: str, flags: int) -> int:
    """Opens a plain file and nothing else, without waiting as for a pipe."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise Unreadable("this is no file but a folder, a pipe or a device", "FILE_UNSUPPORTED")


def _read(data: bytes, kind: Kind, limits: Limits, find_ocr: FindOcr) -> Reading:
    match kind:
        case "pdf":
            found = pdf_text(data, limits, find_ocr)
            is_cut = found.unread_pages > 0 or len(found.texts) < found.pages
            return _build_reading(found.texts, kind, limits, found.pages, found.ocr_pages, is_cut)
        case "docx":
            return _build_reading([docx_text(data, limits)], kind, limits)
        case "image":
            texts = image_texts(data, limits, find_ocr)
            return _build_reading(texts, kind, limits, len(texts), len(texts))
        case "text":
            return _build_reading([plain_text(data)], kind, limits)
        case _:
            assert_never(kind)


def _build_reading(
    texts: list[str], kind: Kind, limits: Limits, pages: int = 1, ocr_pages: int = 0, is_cut: bool = False
) -> Reading:
    joined = "\n\n".join(texts)
    text = clean_text(joined[: limits.characters])
    return Reading(text, kind, pages, ocr_pages, is_cut or len(joined) > limits.characters)


def _check_size(size: int, limits: Limits) -> None:
    if size == 0:
        raise Unreadable("the file is empty", "FILE_EMPTY")
    if size > limits.bytes:
        raise Unreadable(f"the file has {size:,} bytes; {limits.bytes:,} are the most that are read", "FILE_TOO_LARGE")
