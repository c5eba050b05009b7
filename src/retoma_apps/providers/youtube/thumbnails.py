"""What a thumbnail must be."""

from __future__ import annotations

from pathlib import Path

from retoma import GiveUp

LARGEST = 2 * 1024**2
_KINDS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}


def read_thumbnail(path: Path) -> tuple[bytes, str]:
    """Its bytes and its media type, told by its content. Raises GiveUp if no channel would take it."""
    if path.stat().st_size > LARGEST:
        raise GiveUp("a thumbnail has at most 2 MB: make it smaller, or a JPEG", "THUMBNAIL_TOO_LARGE")
    content = path.read_bytes()
    for beginning, kind in _KINDS.items():
        if content.startswith(beginning):
            return content, kind
    raise GiveUp("a thumbnail is a PNG or a JPEG, and this file is neither", "THUMBNAIL_INVALID")
