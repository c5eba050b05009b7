"""Mask passwords in database URLs."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

MASK = "***"


def mask_password(url: str) -> str:
    """Return the URL with its password masked, or only the mask if the URL cannot be parsed."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return MASK
    if parts.scheme not in ("postgresql", "postgres") or "@" in parts.path + parts.query + parts.fragment:
        return MASK
    user, _, host = parts.netloc.rpartition("@")
    if ":" in user:
        parts = parts._replace(netloc=f"{user.partition(':')[0]}:{MASK}@{host}")
    query = [(name, MASK if "password" in name.lower() else value) for name, value in parse_qsl(parts.query)]
    if any(value == MASK for _, value in query):
        parts = parts._replace(query=urlencode(query, safe="/*"))
    return urlunsplit(parts)
