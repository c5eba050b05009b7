"""Links that serve one file of a run without a key, until they expire. Their signature is the key."""

from __future__ import annotations

import hmac
import secrets
from datetime import datetime, timedelta
from uuid import UUID

LINK_LIFETIME = timedelta(days=1)
LINK_PURPOSE = "file links"


def generate_link_secret() -> str:
    return secrets.token_hex(32)


def build_link_query(secret: str, run: UUID, digest: str, expires_at: datetime) -> str:
    """Return what to append to the address of a file of this run, so that it is served without a key."""
    expires = int(expires_at.timestamp())
    return f"?expires={expires}&signature={_compute_signature(secret, run, digest, expires)}"


def is_signature_valid(secret: str, run: UUID, digest: str, expires: int, signature: str) -> bool:
    """Return whether we made this link. Whether it has expired is for the caller to see."""
    right = _compute_signature(secret, run, digest, expires)
    return hmac.compare_digest(right.encode(), signature.encode(errors="replace"))


def _compute_signature(secret: str, run: UUID, digest: str, expires: int) -> str:
    return hmac.new(secret.encode(), f"{run}/{digest}/{expires}".encode(), "sha256").hexdigest()


def build_url(base: str | None, path: str) -> str:
    """Return the path under the server's public address; without one, the path as it is."""
    return f"{(base or '').rstrip('/')}{path}"
