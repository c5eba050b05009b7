"""Signatures of webhooks: of those that Retoma sends, and of those that come in.

Two families of headers carry them. Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature`, the
base64 of HMAC-SHA256 over `id.timestamp.body`. And the older `X-Webhook-Timestamp` and `X-Webhook-Signature`, the hex
of HMAC-SHA256 over `timestamp.body`. All are over the very bytes of the body.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from retoma.errors import BadSignature

__all__ = [
    "BadSignature",
    "check_secret",
    "generate_secret",
    "sign_headers",
    "sign_hex",
    "sign_standard",
    "to_library_secret",
    "verify",
]

PREFIX = "whsec_"
TOLERANCE = timedelta(minutes=5)
_MIN_SECRET_BYTES, _NEW_SECRET_BYTES, _MAX_SECRET_BYTES = 24, 32, 64


def generate_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(_NEW_SECRET_BYTES)).decode()


def check_secret(secret: str) -> None:
    """Raises ValueError if it is empty, or begins like a secret of Standard Webhooks and does not go on like one."""
    _decode_secret(secret)


def to_library_secret(secret: str) -> str:
    """Return the secret in the form that libraries of Standard Webhooks take: `whsec_` and the base64 of the key.

    One that is written otherwise is used as it is, letter by letter, and becomes the base64 of its letters.
    """
    return secret if secret.startswith(PREFIX) else PREFIX + base64.b64encode(secret.encode()).decode()


def sign_headers(keys: Sequence[str], message: str, at: datetime, body: bytes, *, attempt: int = 1) -> dict[str, str]:
    """Both families. While a secret is rotated there are two keys, the new one first.

    The older header has room for one signature, and receivers compare it whole. So attempts take turns, the former
    key first: a receiver that knows either of the two accepts one of any two attempts.
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
    """One `v1,...` of Standard Webhooks."""
    signed = _compute_hmac(_decode_secret(secret), f"{message}.{seconds}.".encode(errors="replace") + body)
    return f"v1,{base64.b64encode(signed).decode()}"


def sign_hex(secret: str, seconds: int, body: bytes) -> str:
    """The secret is used as it is written, whatever its form."""
    return _compute_hmac(secret.encode(), f"{seconds}.".encode() + body).hex()


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

    Return the webhook's id: remember it for a while, as the same webhook may come again. With `older`, only the older
    headers are read. They sign no id, so what is returned is a digest of the time and the body: it recognises a replay,
    but not another attempt, which has a time of its own. Raises ValueError if a secret is empty.
    """
    given = {name.lower(): value for name, value in headers.items()}
    several = [keys] if isinstance(keys, str) else list(keys)
    for key in several:
        check_secret(key)
    name = "x-webhook-signature" if legacy else "webhook-signature"
    if name not in given:
        raise BadSignature(f"there is no {name} header")
    return (_verify_hex if legacy else _verify_standard)(several, given, body, now, tolerance)


def _verify_standard(
    keys: Sequence[str], given: Mapping[str, str], body: bytes, now: datetime, tolerance: timedelta
) -> str:
    message = given.get("webhook-id", "")
    if not message or "." in message:
        raise BadSignature("there is no webhook-id header, or it has a dot in it")
    seconds = _check_timestamp(given.get("webhook-timestamp", ""), now, tolerance)
    right = [sign_standard(key, message, seconds, body) for key in keys]
    _require_match(right, given["webhook-signature"].split(" "))
    return message


def _verify_hex(keys: Sequence[str], given: Mapping[str, str], body: bytes, now: datetime, tolerance: timedelta) -> str:
    seconds = _check_timestamp(given.get("x-webhook-timestamp", ""), now, tolerance)
    claimed = given["x-webhook-signature"].removeprefix("sha256=")
    _require_match([sign_hex(key, seconds, body) for key in keys], [claimed])
    return hashlib.sha256(f"{seconds}.".encode() + body).hexdigest()


def _check_timestamp(text: str, now: datetime, tolerance: timedelta) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise BadSignature("the timestamp is no whole number of seconds")
    if abs(int(text) - now.timestamp()) > tolerance.total_seconds():
        raise BadSignature(f"the timestamp is more than {tolerance.total_seconds():g} s away from now")
    return int(text)


def _require_match(right: Sequence[str], claimed: Sequence[str]) -> None:
    # As bytes: of a text that is not ASCII the comparison would raise TypeError. And every pair, however it goes.
    same = [hmac.compare_digest(a.encode(), b.encode(errors="replace")) for a in right for b in claimed]
    if not any(same):
        raise BadSignature("the signature is not that of this body with our secret")


def _decode_secret(secret: str) -> bytes:
    """The bytes that a `whsec_` secret spells; of a secret in another form, its own."""
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
            f"a secret that begins with {PREFIX} goes on with the base64 of at least {_MIN_SECRET_BYTES} bytes and "
            "at most "
            f"{_MAX_SECRET_BYTES}: echo {PREFIX}$(openssl rand -base64 {_NEW_SECRET_BYTES})"
        )
    return key


def _compute_hmac(key: bytes, signed: bytes) -> bytes:
    return hmac.digest(key, signed, "sha256")
