"""OpenAI's images route, with injectable faults."""

from __future__ import annotations

import time
from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from retoma_apps.providers.images.offline import OfflineImages
from standins.faults import METADATA, PAGE
from standins.faults import Faults as CommonFaults
from standins.server import Routes, StandInServer, read_bearer

_FIELDS = frozenset(
    ("model", "prompt", "n", "size", "quality", "output_format", "background", "response_format", "user")
)


@dataclass
class Faults(CommonFaults):
    empty: int = 0
    """A 200 without any picture."""
    filtered: int = 0
    no_credit: int = 0
    """A 429 that waiting does not fix."""
    not_picture: int = 0
    private_link: int = 0
    """A link to a cloud's metadata address."""
    links: bool = False
    """Send a link instead of the picture."""


class StandIn(StandInServer[Faults]):
    path = "/v1"

    def __init__(self, *, key: str | None = None) -> None:
        super().__init__(Faults(), key=key)
        self.requests: list[dict[str, Any]] = []
        """Bodies of all accepted requests."""
        self.file_headers: list[dict[str, str]] = []
        """Headers of all requests for files."""
        self._made: list[bytes] = []

    def variables(self, base_url: str) -> dict[str, str]:
        return {"IMAGES_BASE_URL": base_url, "RETOMA_ALLOW_HOSTS": "127.0.0.1"}  # its links lead to itself

    def tally(self) -> dict[str, Any]:
        return {"requests": len(self.requests), **super().tally()}

    def _routes(self) -> Routes:
        yield "POST", "/v1/images/generations", self._generate
        yield "GET", "/v1/models", self._list_models
        yield "GET", "/files/{number}", self._file

    async def _generate(self, request: Request) -> Response:
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        body = await request.json()
        if not body.get("prompt") or (odd := sorted(body.keys() - _FIELDS)):
            return _failure(400, f"bad request: {odd if body.get('prompt') else 'no prompt'}", "invalid_value")
        self.requests.append(body)
        made = [] if self._strikes("empty") else [await self._picture(body, str(request.base_url))]
        answer = {"created": int(time.time()), "data": made, "usage": {"total_tokens": 100}}
        return await self._deliver(JSONResponse(answer))

    async def _list_models(self, request: Request) -> Response:
        refusal = await self._refusal(request)
        return refusal or JSONResponse({"object": "list", "data": [{"id": "gpt-image-1", "object": "model"}]})

    async def _refusal(self, request: Request) -> Response | None:
        given = read_bearer(request)
        if not self._accepts(given):
            return _failure(401, f"Incorrect API key provided: {given}", "invalid_api_key")
        if self._strikes("no_credit"):
            return _failure(429, "You exceeded your current quota", "insufficient_quota")
        if self._strikes("filtered"):
            return _failure(400, "Your request was rejected by the safety system", "moderation_blocked")
        return await self._refuse(
            _failure(429, "Rate limit reached", "rate_limit_exceeded"),
            _failure(500, "The server had an error", "server_error"),
        )

    async def _picture(self, body: dict[str, Any], origin: str) -> dict[str, str]:
        wide, high = map(int, body.get("size", "1024x1024").split("x"))
        made = await OfflineImages().make(body["prompt"], width=wide, height=high)
        if self._strikes("not_picture"):
            made = PAGE.encode()
        if self._strikes("private_link"):
            return {"url": METADATA}
        if not self.faults.links:
            return {"b64_json": b64encode(made).decode()}
        self._made.append(made)
        return {"url": f"{origin}files/{len(self._made) - 1}"}

    async def _file(self, number: int, request: Request) -> Response:
        self.file_headers.append(dict(request.headers))
        if number >= len(self._made):
            return _failure(404, "no such file", "not_found")
        return Response(self._made[number], media_type="image/jpeg")


def _failure(status: int, message: str, code: str) -> JSONResponse:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return JSONResponse({"error": error}, status)
