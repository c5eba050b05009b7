"""Values that a browser keeps for this server and cannot change: small, signed, and valid for some minutes."""

from __future__ import annotations

import base64
import hmac
import json
import secrets
from datetime import timedelta
from typing import Any

from retoma.client import Client
from retoma.store import deliveries

_KEY_PURPOSE = "login steps"


class SignedValues:
    """All servers on one database sign with the same key, so the next request may reach another one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._key: bytes | None = None

    async def sign(self, purpose: str, values: dict[str, Any], lifetime: timedelta) -> str:
        """Return the values as text, readable by anyone who has it. `purpose` says where they are valid."""
        expires = (await self._client.now() + lifetime).timestamp()
        text = _encode(json.dumps([purpose, expires, values], separators=(",", ":")).encode())
        return f"{text}.{_encode(await self._compute_signature(text))}"

    async def read(self, purpose: str, text: str | None) -> dict[str, Any] | None:
        """Return the values, or None if this server did not sign them, for another purpose, or if they expired."""
        encoded, _, signature = (text or "").partition(".")
        right = _encode(await self._compute_signature(encoded))
        if not hmac.compare_digest(right.encode(), signature.encode(errors="replace")):
            return None
        signed_purpose, expires, values = json.loads(base64.urlsafe_b64decode(encoded))
        is_valid = signed_purpose == purpose and (await self._client.now()).timestamp() < expires
        return values if is_valid else None

    async def _compute_signature(self, text: str) -> bytes:
        if self._key is None:
            key = await deliveries.get_or_create_signing_key(
                self._client.database, _KEY_PURPOSE, secrets.token_urlsafe(32)
            )
            self._key = key.encode()
        return hmac.new(self._key, text.encode(errors="replace"), "sha256").digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
