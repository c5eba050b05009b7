"""The signature of requests to and from the plugin: HMAC-SHA256 over method, route, time, nonce and body.

The route is WordPress's REST route with its namespace. It is not the path of the URL, which depends on permalinks,
folders and proxies.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import uuid4

from retoma.errors import BadSignature

WINDOW = timedelta(minutes=5)
_PREFIX = "x-autowriter-"


@dataclass(frozen=True)
class Credentials:
    """A secret of a site and the id by which both sides name it."""

    key_id: str
    secret: str = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Credentials:
        """Read what the plugin shows once: the key id, a dot, and the secret. Raise ValueError if it is not that."""
        key_id, _, secret = text.strip().partition(".")
        if not key_id or not secret or not text.isascii():
            raise ValueError("not a secret of the plugin: copy all of it, with the part before the dot")
        return cls(key_id, secret)


def sign_headers(credentials: Credentials, method: str, route: str, body: bytes, now: datetime) -> dict[str, str]:
    """Return the headers that sign a request."""
    timestamp, nonce = str(int(now.timestamp())), uuid4().hex
    return {
        f"{_PREFIX}key-id": credentials.key_id,
        f"{_PREFIX}timestamp": timestamp,
        f"{_PREFIX}nonce": nonce,
        f"{_PREFIX}signature": _sign(credentials, method, route, timestamp, nonce, body),
    }


def verify(
    accepted: Sequence[Credentials], headers: Mapping[str, str], method: str, route: str, body: bytes, now: datetime
) -> Credentials:
    """Return which of the accepted credentials signed a request within the last five minutes, or raise BadSignature.

    Nonces are not remembered: identify what arrives twice by its own id.
    """
    received = {name.lower(): value for name, value in headers.items()}
    key_id, timestamp, nonce, claimed = (
        received.get(f"{_PREFIX}{name}", "") for name in ("key-id", "timestamp", "nonce", "signature")
    )
    credentials = next((each for each in accepted if each.key_id == key_id), None)
    if credentials is None:
        raise BadSignature("the request is not signed with a key that we know")
    expected = _sign(credentials, method, route, timestamp, nonce, body)
    # As bytes: comparing text that is not ASCII would raise TypeError.
    if not hmac.compare_digest(expected.encode(), claimed.encode(errors="replace")):
        raise BadSignature("the signature does not match this body and secret")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 12):
        raise BadSignature("the timestamp is not a whole number of seconds")
    if abs(int(timestamp) - now.timestamp()) > WINDOW.total_seconds():
        raise BadSignature("the timestamp differs from the current time by more than five minutes")
    return credentials


def _sign(credentials: Credentials, method: str, route: str, timestamp: str, nonce: str, body: bytes) -> str:
    signed = f"{method}\n{route}\n{timestamp}\n{nonce}\n".encode(errors="replace") + body
    return hmac.digest(credentials.secret.encode(), signed, "sha256").hex()
