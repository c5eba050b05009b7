"""Read image files: opened only if they are small enough, and read with OCR as scanned pages are."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from typing import Any

from retoma_apps.classifier.steps.reading.errors import Unreadable
from retoma_apps.classifier.steps.reading.limits import Limits
from retoma_apps.classifier.steps.reading.ocr import ADVICE, FindOcr

_FORMATS = ("PNG", "JPEG", "TIFF", "GIF", "WEBP", "BMP")


def image_texts(data: bytes, limits: Limits, find_ocr: FindOcr) -> list[str]:
    """Return the text of each picture in the file: a TIFF may contain many, of which `limits.ocr_pages` are read."""
    if (ocr := find_ocr()) is None:
        raise Unreadable(f"the file is a picture: {ADVICE}", "FILE_NEEDS_OCR")
    return [ocr(picture) for picture in _pictures(data, limits)]


def _pictures(data: bytes, limits: Limits) -> Iterator[Any]:
    try:
        import numpy
        from PIL import Image
    except ImportError as error:
        raise Unreadable(f"pictures cannot be opened here: {ADVICE}", "NOT_INSTALLED") from error
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            warnings.simplefilter("ignore")  # about broken metadata, which is not used
            for frame in range(min(getattr(image, "n_frames", 1), limits.ocr_pages)):
                image.seek(frame)
                _check(image.width * image.height, limits)
                yield numpy.asarray(image.convert("RGB"))
    except (Image.DecompressionBombError, MemoryError) as error:
        raise _too_large(limits) from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise Unreadable("the picture is damaged", "FILE_DAMAGED") from error


def _check(pixels: int, limits: Limits) -> None:
    if pixels > limits.pixels:
        raise _too_large(limits)


def _too_large(limits: Limits) -> Unreadable:
    return Unreadable(f"the picture has more than {limits.pixels:,} pixels", "FILE_TOO_LARGE")
