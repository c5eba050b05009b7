"""Database addresses without their passwords."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

MASK = "***"


def masked(url: str) -> str:
    """The same address with its password, wherever it stands, replaced."""
    parts = urlsplit(url)
    user, _, place = parts.netloc.rpartition("@")
    if ":" in user:
        parts = parts._replace(netloc=f"{user.partition(':')[0]}:{MASK}@{place}")
    query = [(name, MASK if "password" in name.lower() else value) for name, value in parse_qsl(parts.query)]
    if any(value == MASK for _, value in query):
        parts = parts._replace(query=urlencode(query, safe="/*"))
    return urlunsplit(parts)
