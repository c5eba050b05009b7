"""OCR with RapidOCR. Its models are part of the package, so nothing is downloaded.

OCR needs more memory than other reading: give a step that may read scans `Isolation(memory=2 << 30)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

Ocr = Callable[[Any], str]
"""Returns the text of a picture: an array of height, width and three 8-bit colours."""

FindOcr = Callable[[], Ocr | None]
"""Called only for a picture: an engine takes much memory and some seconds to load."""

ADVICE = "install retoma[ocr] to read pictures of text"


@cache
def installed_ocr() -> Ocr | None:
    """Return the engine of this machine, created once per process; None without the extra `ocr`."""
    try:
        from rapidocr import RapidOCR
    except ImportError:
        return None
    engine: Any = RapidOCR(params={"Global.log_level": "critical"})
    return lambda picture: "\n".join(engine(picture).txts or ())
