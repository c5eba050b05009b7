"""Read plain text of unknown encoding, and normalise any text for storage."""

from __future__ import annotations

import codecs
import re

from retoma_apps.classifier.steps.reading.kinds import make_unsupported_error
from retoma_apps.providers.unicode_text import compose

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # starts like that of UTF-16, so it is checked first
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SAMPLE = 65_536
_MOST_CONTROLS = 0.02
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")
_SPACES = re.compile(r"[ \t\f\v\u00a0]+")
_LINES = re.compile(r" ?\n ?")
_GAPS = re.compile(r"\n{3,}")


def plain_text(data: bytes) -> str:
    """Raise Unreadable if the bytes are not text in any of the encodings tried."""
    text = _decode(data)
    sample = text[:_SAMPLE]
    if len(_CONTROLS.findall(sample)) > _MOST_CONTROLS * len(sample):
        raise make_unsupported_error("not text in a known encoding")
    return text


def clean_text(text: str) -> str:
    """Normalise Unicode, spaces and empty lines, and remove control characters."""
    text = compose(text.replace("\r\n", "\n").replace("\r", "\n"))
    text = _SPACES.sub(" ", _CONTROLS.sub("", text))
    return _GAPS.sub("\n\n", _LINES.sub("\n", text)).strip()


def _decode(data: bytes) -> str:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    if wide := _detect_utf16(data[:_SAMPLE]):
        return data.decode(wide, errors="replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _decode_western(data)


def _detect_utf16(sample: bytes) -> str | None:
    """Detect UTF-16 without a mark: in European text every second byte is zero."""
    half = max(len(sample) // 2, 1)
    if sample[1::2].count(0) > 0.7 * half:
        return "utf-16-le"
    return "utf-16-be" if sample[0::2].count(0) > 0.7 * half else None


def _decode_western(data: bytes) -> str:
    """Decode Windows-1252, as used in Brazil; five of its bytes are undefined, and then try Latin 1."""
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        return data.decode("latin-1")
