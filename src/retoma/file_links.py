"""Signed links that give access to one file of a run, without an API key, until they expire."""

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
    """Return the query to append to the URL of a file of this run, so it is served without an API key."""
    expires = int(expires_at.timestamp())
    return f"?expires={expires}&signature={_compute_signature(secret, run, digest, expires)}"


def is_signature_valid(secret: str, run: UUID, digest: str, expires: int, signature: str) -> bool:
    """Return whether this link was signed with the secret. The caller must check whether it has expired."""
    right = _compute_signature(secret, run, digest, expires)
    return hmac.compare_digest(right.encode(), signature.encode(errors="replace"))


def _compute_signature(secret: str, run: UUID, digest: str, expires: int) -> str:
    return hmac.new(secret.encode(), f"{run}/{digest}/{expires}".encode(), "sha256").hexdigest()


def build_url(base: str | None, path: str) -> str:
    """Return the path under the server's public URL, or the path alone without one."""
    return f"{(base or '').rstrip('/')}{path}"
