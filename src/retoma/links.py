"""Links that serve one file of a run without a key, until they expire. Their signature is the key."""

from __future__ import annotations

import hmac
import secrets
from datetime import datetime, timedelta
from urllib.parse import quote
from uuid import UUID

LIFETIME = timedelta(days=1)
PURPOSE = "file links"


def new_link_secret() -> str:
    return secrets.token_hex(32)


def signed_path(secret: str, run: UUID, digest: str, name: str, expires_at: datetime) -> str:
    """Return the path and query of a link. `name` is for people, and is not signed."""
    expires = int(expires_at.timestamp())
    signature = _signature(secret, run, digest, expires)
    return f"/media/{run}/{digest}/{quote(name or digest, safe='')}?expires={expires}&signature={signature}"


def is_signed(secret: str, run: UUID, digest: str, expires: int, signature: str) -> bool:
    """Return whether we made this link. Whether it has expired is for the caller to see."""
    right = _signature(secret, run, digest, expires)
    return hmac.compare_digest(right.encode(), signature.encode(errors="replace"))


def _signature(secret: str, run: UUID, digest: str, expires: int) -> str:
    return hmac.new(secret.encode(), f"{run}/{digest}/{expires}".encode(), "sha256").hexdigest()


def absolute(base: str | None, path: str) -> str:
    """Return the path under the server's public address; without one, the path as it is."""
    return f"{(base or '').rstrip('/')}{path}"
