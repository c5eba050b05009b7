"""Read the text of a PDF with PDFium. It is native code on hostile input: call it in a child process."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from retoma_apps.classifier.steps.reading.errors import Unreadable
from retoma_apps.classifier.steps.reading.limits import Limits
from retoma_apps.classifier.steps.reading.ocr import ADVICE, FindOcr

_PASSWORD_ERRORS = (4, 5)  # PDFium's codes for a wrong password and an unknown encryption
_DOTS_PER_POINT = 200 / 72


@dataclass
class PdfText:
    """`unread_pages` counts scanned pages that were left out, without OCR or over the limit."""

    pages: int
    texts: list[str] = field(default_factory=list)
    ocr_pages: int = 0
    unread_pages: int = 0


def pdf_text(data: bytes, limits: Limits, find_ocr: FindOcr) -> PdfText:
    """Read page by page up to `limits.characters`. Raise Unreadable if there are only pictures and no OCR."""
    with _open_pdf(data) as document:
        found = PdfText(_count_pages(document, limits))
        length = 0
        for number in range(found.pages):
            text = _read_page(document, number, found, limits, find_ocr)
            found.texts.append(text)
            length += len(text)
            if length > limits.characters:
                break
    if found.unread_pages and not length:
        raise Unreadable(f"the PDF contains only pictures of text: {ADVICE}", "FILE_NEEDS_OCR")
    return found


@contextmanager
def _open_pdf(data: bytes) -> Iterator[Any]:
    try:
        import pypdfium2
    except ImportError as error:
        raise Unreadable("reading PDFs needs an extra: install retoma[classifier]", "NOT_INSTALLED") from error
    try:
        document = pypdfium2.PdfDocument(data)
        try:
            yield document
        finally:
            document.close()
    except pypdfium2.PdfiumError as error:
        if _is_locked(data):
            raise Unreadable("the PDF is protected with a password: send it without one", "FILE_ENCRYPTED") from error
        raise _damaged_pdf() from error


def _is_locked(data: bytes) -> bool:
    """Ask PDFium again after another failure: it reports the previous file's error if it has none for this one."""
    import pypdfium2

    code = None
    for content in (b"", data):
        try:
            pypdfium2.PdfDocument(content).close()
        except pypdfium2.PdfiumError as error:
            code = getattr(error, "err_code", None)
    return code in _PASSWORD_ERRORS


def _count_pages(document: Any, limits: Limits) -> int:
    count = len(document)
    if count < 1:
        raise _damaged_pdf()
    if count > limits.pages:
        raise Unreadable(f"the PDF has {count:,} pages, over the limit of {limits.pages:,}", "FILE_TOO_LARGE")
    return count


def _read_page(document: Any, number: int, found: PdfText, limits: Limits, find_ocr: FindOcr) -> str:
    page = document[number]
    try:
        text = _extract_text(page)
        if text or _is_blank(page):
            return text
        if found.ocr_pages >= limits.ocr_pages or (ocr := find_ocr()) is None:
            found.unread_pages += 1
            return ""
        found.ocr_pages += 1
        return ocr(_render_page(page, limits))
    finally:
        page.close()


def _extract_text(page: Any) -> str:
    """Return the text; empty if most characters are meaningless, as from fonts without a character table."""
    part = page.get_textpage()
    try:
        text: str = part.get_text_bounded(errors="replace")
    finally:
        part.close()
    signs = "".join(text.split())
    odd = sum(unicodedata.category(sign) in ("Co", "Cn", "Cc", "Cs") or sign == "\ufffd" for sign in signs[:2_000])
    return "" if odd > len(signs[:2_000]) / 2 else text.strip()


def _is_blank(page: Any) -> bool:
    return next(iter(page.get_objects(max_depth=1)), None) is None


def _render_page(page: Any, limits: Limits) -> Any:
    """Render at 200 dots per inch, or less for the pixel limit, whatever size the page claims."""
    area = math.prod(page.get_size())
    if not 0 < area < math.inf:
        raise _damaged_pdf()
    scale = min(_DOTS_PER_POINT, math.sqrt(limits.pixels / area))
    return page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False).to_numpy()


def _damaged_pdf() -> Unreadable:
    return Unreadable("the PDF is damaged: it or one of its pages cannot be opened", "FILE_DAMAGED")
