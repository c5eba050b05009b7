"""Sign outgoing webhooks, and verify incoming ones.

There are two sets of headers. Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature`, the base64
of HMAC-SHA256 over `id.timestamp.body`. Legacy: `X-Webhook-Timestamp` and `X-Webhook-Signature`, the hex of HMAC-SHA256
over `timestamp.body`. Both sign the exact bytes of the body.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from retoma.errors import BadSignature as BadSignature

PREFIX = "whsec_"
TOLERANCE = timedelta(minutes=5)
_MIN_SECRET_BYTES, _NEW_SECRET_BYTES, _MAX_SECRET_BYTES = 24, 32, 64


def generate_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(_NEW_SECRET_BYTES)).decode()


def check_secret(secret: str) -> None:
    """Raise ValueError if the secret is empty, or starts with `whsec_` but is not valid for Standard Webhooks."""
    _decode_secret(secret)


def to_library_secret(secret: str) -> str:
    """Return the secret in the form that Standard Webhooks libraries take: `whsec_` and the base64 of the key.

    For a secret in another form the key is its text, in UTF-8.
    """
    return secret if secret.startswith(PREFIX) else PREFIX + base64.b64encode(secret.encode()).decode()


def sign_headers(keys: Sequence[str], message: str, at: datetime, body: bytes, *, attempt: int = 1) -> dict[str, str]:
    """Return both sets of headers. During a rotation there are two keys, the new one first.

    The legacy header holds one signature, which receivers compare as a whole. So attempts alternate between the keys,
    starting with the previous one: a receiver that knows either key accepts one of any two attempts.
    """
    seconds = int(at.timestamp())
    return {
        "webhook-id": message,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(sign_standard(key, message, seconds, body) for key in keys),
        "x-webhook-timestamp": str(seconds),
        "x-webhook-signature": sign_hex(keys[attempt % len(keys)], seconds, body),
    }


def sign_standard(secret: str, message: str, seconds: int, body: bytes) -> str:
    """Return one `v1,...` signature of Standard Webhooks."""
    signed = hmac.digest(_decode_secret(secret), f"{message}.{seconds}.".encode(errors="replace") + body, "sha256")
    return f"v1,{base64.b64encode(signed).decode()}"


def sign_hex(secret: str, seconds: int, body: bytes) -> str:
    """Return a legacy signature. Its key is the text of the secret, whatever its form."""
    return hmac.digest(secret.encode(), f"{seconds}.".encode() + body, "sha256").hex()


def verify(
    keys: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    now: datetime,
    tolerance: timedelta = TOLERANCE,
    *,
    legacy: bool = False,
) -> str:
    """Raise BadSignature unless one of these secrets signed `body` within `tolerance` of `now`.

    Return the webhook's id: remember it for a while, since the same webhook may come again. With `legacy`, read only
    the legacy headers. They sign no id, so return a digest of the timestamp and the body: it identifies a replay, but
    not another attempt, which has its own timestamp. Raise ValueError if a secret is empty.
    """
    received = {name.lower(): value for name, value in headers.items()}
    several = [keys] if isinstance(keys, str) else list(keys)
    for key in several:
        check_secret(key)
    name = "x-webhook-signature" if legacy else "webhook-signature"
    if name not in received:
        raise BadSignature(f"the {name} header is missing")
    return (_verify_hex if legacy else _verify_standard)(several, received, body, now, tolerance)


def _verify_standard(
    keys: Sequence[str], received: Mapping[str, str], body: bytes, now: datetime, tolerance: timedelta
) -> str:
    message = received.get("webhook-id", "")
    if not message or "." in message:
        raise BadSignature("the webhook-id header is missing, or contains a dot")
    seconds = _check_timestamp(received.get("webhook-timestamp", ""), now, tolerance)
    expected = [sign_standard(key, message, seconds, body) for key in keys]
    _require_match(expected, received["webhook-signature"].split(" "))
    return message


def _verify_hex(
    keys: Sequence[str], received: Mapping[str, str], body: bytes, now: datetime, tolerance: timedelta
) -> str:
    seconds = _check_timestamp(received.get("x-webhook-timestamp", ""), now, tolerance)
    claimed = received["x-webhook-signature"].removeprefix("sha256=")
    _require_match([sign_hex(key, seconds, body) for key in keys], [claimed])
    return hashlib.sha256(f"{seconds}.".encode() + body).hexdigest()


def _check_timestamp(text: str, now: datetime, tolerance: timedelta) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise BadSignature("the timestamp is not a whole number of seconds")
    if abs(int(text) - now.timestamp()) > tolerance.total_seconds():
        raise BadSignature(f"the timestamp differs from the current time by more than {tolerance.total_seconds():g} s")
    return int(text)


def _require_match(expected: Sequence[str], claimed: Sequence[str]) -> None:
    # As bytes: comparing text that is not ASCII would raise TypeError. All pairs, so the time reveals nothing.
    same = [hmac.compare_digest(a.encode(), b.encode(errors="replace")) for a in expected for b in claimed]
    if not any(same):
        raise BadSignature("the signature does not match this body and secret")


def _decode_secret(secret: str) -> bytes:
    """Return the key bytes: the decoded base64 of a `whsec_` secret, or the text of another."""
    if not secret:
        raise ValueError("the secret is empty: anyone could sign with it")
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not _MIN_SECRET_BYTES <= len(key) <= _MAX_SECRET_BYTES:
        raise ValueError(
            f"a secret that starts with {PREFIX} must continue with the base64 of {_MIN_SECRET_BYTES} to "
            f"{_MAX_SECRET_BYTES} bytes; create one with: echo {PREFIX}$(openssl rand -base64 {_NEW_SECRET_BYTES})"
        )
    return key
