"""Pictures of text: read by RapidOCR, whose models come with it, so that nothing is fetched.

It needs more memory than other reading: give the step that may meet scans `Isolation(memory=2 << 30)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

Ocr = Callable[[Any], str]
"""Makes text of a picture, which is an array of height, width and three colours of eight bits."""

FindOcr = Callable[[], Ocr | None]
"""Is asked only when a picture is met: an engine takes much memory and some seconds to load."""

ADVICE = "install retoma[ocr] to read pictures of text"


@cache
def installed_ocr() -> Ocr | None:
    """The one of this machine, made once for each process; None without the extra `ocr`."""
    try:
        from rapidocr import RapidOCR
    except ImportError:
        return None
    engine: Any = RapidOCR(params={"Global.log_level": "critical"})
    return lambda picture: "\n".join(engine(picture).txts or ())
