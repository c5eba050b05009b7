"""The requirements for a thumbnail."""

from __future__ import annotations

from pathlib import Path

from retoma import GiveUp

LARGEST = 2 * 1024**2
_KINDS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}


def read_thumbnail(path: Path) -> tuple[bytes, str]:
    """Return its bytes and its media type, detected from the content. Raise GiveUp if no channel would accept it."""
    if path.stat().st_size > LARGEST:
        raise GiveUp("the thumbnail is larger than 2 MB: make it smaller, or use JPEG", "THUMBNAIL_TOO_LARGE")
    content = path.read_bytes()
    for beginning, kind in _KINDS.items():
        if content.startswith(beginning):
            return content, kind
    raise GiveUp("the thumbnail is neither PNG nor JPEG", "THUMBNAIL_INVALID")
