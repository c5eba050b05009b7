"""Read the text of a document of any supported kind."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import assert_never

from retoma_apps.classifier.steps.reading.docx import docx_text
from retoma_apps.classifier.steps.reading.errors import Unreadable
from retoma_apps.classifier.steps.reading.images import image_texts
from retoma_apps.classifier.steps.reading.kinds import Kind, kind_of
from retoma_apps.classifier.steps.reading.limits import Limits
from retoma_apps.classifier.steps.reading.ocr import FindOcr, Ocr, installed_ocr
from retoma_apps.classifier.steps.reading.pdf import pdf_text
from retoma_apps.classifier.steps.reading.plain import clean_text, plain_text

DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Reading:
    """`is_truncated` means that there was more text, or that scanned pages were not read."""

    text: str
    kind: Kind
    pages: int = 1
    ocr_pages: int = 0
    is_truncated: bool = False


def read_path(path: str, limits: Limits = DEFAULT_LIMITS) -> Reading:
    """Read a local file. For an isolated step: it needs no network and no environment."""
    with open(path, "rb", opener=_open_regular_file) as file:
        _check_size(os.fstat(file.fileno()).st_size, limits)
        return read(file.read(limits.bytes + 1), limits)


def read(data: bytes, limits: Limits = DEFAULT_LIMITS, ocr: Ocr | None = None) -> Reading:
    """Return the text and how it was read. Raise Unreadable with a code for the reason.

    Without `ocr`, use the engine installed on this machine, if any.
    """
    _check_size(len(data), limits)
    reading = _read(data, kind_of(data), limits, (lambda: ocr) if ocr else installed_ocr)
    if not reading.text:
        raise Unreadable("no text was found in the file", "FILE_EMPTY")
    return reading


def _open_regular_file(path: str, flags: int) -> int:
    """Open regular files only, without blocking on a pipe."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise Unreadable("this is not a file but a folder, a pipe or a device", "FILE_UNSUPPORTED")


def _read(data: bytes, kind: Kind, limits: Limits, find_ocr: FindOcr) -> Reading:
    match kind:
        case "pdf":
            found = pdf_text(data, limits, find_ocr)
            is_truncated = found.unread_pages > 0 or len(found.texts) < found.pages
            return _build_reading(found.texts, kind, limits, found.pages, found.ocr_pages, is_truncated)
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
    texts: list[str], kind: Kind, limits: Limits, pages: int = 1, ocr_pages: int = 0, is_truncated: bool = False
) -> Reading:
    joined = "\n\n".join(texts)
    text = clean_text(joined[: limits.characters])
    return Reading(text, kind, pages, ocr_pages, is_truncated or len(joined) > limits.characters)


def _check_size(size: int, limits: Limits) -> None:
    if size == 0:
        raise Unreadable("the file is empty", "FILE_EMPTY")
    if size > limits.bytes:
        raise Unreadable(f"the file has {size:,} bytes, over the limit of {limits.bytes:,}", "FILE_TOO_LARGE")
