"""A dashboard that signs requests by itself, so that the wire format is tested and not our own client."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx2

from tests.wordpress.articles import make_publication
from tests.wordpress.site import WordPress

NAMESPACE = "/autowriter/v1"
SECONDS = 120


def sign(secret: str, method: str, route: str, timestamp: str, nonce: str, body: bytes) -> str:
    signed = f"{method}\n{route}\n{timestamp}\n{nonce}\n".encode() + body
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Dashboard:
    """`path` is the site of a network, `/` for the main or only one."""

    site: WordPress
    path: str = "/"
    credentials: str = ""
    """What the plugin showed once. Those of the site unless given."""

    @property
    def key_id(self) -> str:
        return self._credentials.partition(".")[0]

    @property
    def secret(self) -> str:
        return self._credentials.partition(".")[2]

    @property
    def _credentials(self) -> str:
        return self.credentials or self.site.credentials[self.path]

    def publish(self, publication: dict[str, Any] | None = None, *, fault: str = "", **changes: Any) -> httpx2.Response:
        return self.send("POST", "/jobs", publication or make_publication(**changes), fault=fault)

    def get_job(self, key: str) -> httpx2.Response:
        return self.send("GET", f"/jobs/{key}")

    def mark(self, job: str, note: str, **unknown: str) -> httpx2.Response:
        return self.send("POST", f"/jobs/{job}/mark", {"note": note, **unknown})

    def send(
        self, method: str, route: str, body: Any = None, *, query: str = "", fault: str = "", **headers: str
    ) -> httpx2.Response:
        """Send a signed request. `headers` replace those of the signature, by the last part of their names."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx2.request(
            method,
            f"{self.site.address}{self.path}wp-json{NAMESPACE}{route}{query and '?' + query}",
            content=content,
            headers={
                "Content-Type": "application/json",
                "X-Test-Fault": fault,
                **self.sign(method, NAMESPACE + route, content, **headers),
            },
            timeout=SECONDS,
        )

    def sign(self, method: str, route: str, content: bytes, **replaced: str) -> dict[str, str]:
        timestamp = replaced.get("timestamp", str(int(time.time())))
        nonce = replaced.get("nonce", uuid4().hex)
        signature = sign(self.secret, method, route, timestamp, nonce, content)
        values = {"key_id": self.key_id, "timestamp": timestamp, "nonce": nonce, "signature": signature, **replaced}
        return {
            f"X-Autowriter-{name.replace('_', '-').title()}": value
            for name, value in values.items()
            if value != "missing"
        }


def read_error(answer: httpx2.Response) -> tuple[int, str, bool]:
    """Return the status, the code and whether the request may be retried."""
    body = answer.json()
    assert body["data"]["status"] == answer.status_code
    return answer.status_code, body["code"], body["data"]["retryable"]
