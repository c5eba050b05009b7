"""OpenAI's route for pictures, with faults to order."""

from __future__ import annotations

import asyncio
import hmac
import time
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from retoma_apps.providers.gpu.standin.server import served
from retoma_apps.providers.images.offline import OfflineImages

PAGE = "<!doctype html><title>502</title><h1>Bad gateway</h1>"
METADATA = "https://169.254.169.254/latest/meta-data/"
_FIELDS = frozenset(
    ("model", "prompt", "n", "size", "quality", "output_format", "background", "response_format", "user")
)


@dataclass
class Faults:
    """Counts are of the next requests and run down."""

    rate_limited: int = 0
    retry_after: float | None = 2
    broken: int = 0
    hangs: int = 0
    """Requests that get no answer until `release` is called or their caller leaves."""
    html: int = 0
    """A 200 with a page of some proxy."""
    empty: int = 0
    """A 200 without any picture."""
    filtered: int = 0
    no_credit: int = 0
    """A 429 that no waiting mends."""
    not_picture: int = 0
    private_link: int = 0
    """A link to a cloud's own address for its machines."""
    links: bool = False
    """Send a link instead of the picture."""


class StandIn:
    def __init__(self, *, key: str | None = None) -> None:
        self.faults = Faults()
        self.requests: list[dict[str, Any]] = []
        """Bodies of all orders that were not refused."""
        self.file_headers: list[dict[str, str]] = []
        """Headers of all requests for files."""
        self.struck: Counter[str] = Counter()
        self._key = key
        self._made: list[bytes] = []
        self._released = asyncio.Event()
        self.app = self._routes()

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """The base URL while it is served from this event loop."""
        async with served(self.app, host, port) as origin:
            try:
                yield f"{origin}/v1"
            finally:
                self.release()

    def release(self) -> None:
        """Let all that hangs be answered."""
        self._released.set()
        self._released = asyncio.Event()

    def _routes(self) -> FastAPI:
        app = FastAPI(openapi_url=None)
        app.add_api_route("/v1/images/generations", self._generate, methods=["POST"])
        app.add_api_route("/files/{number}", self._file, methods=["GET"])
        app.add_api_route("/standin/tally", self._show_tally, methods=["GET"])
        app.add_api_route("/standin/faults", self._set_faults, methods=["PUT"])
        return app

    async def _generate(self, request: Request) -> Response:
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        body = await request.json()
        if not body.get("prompt") or (odd := sorted(body.keys() - _FIELDS)):
            return _failure(400, f"bad request: {odd if body.get('prompt') else 'no prompt'}", "invalid_value")
        self.requests.append(body)
        made = [] if self._strikes("empty") else [await self._picture(body, str(request.base_url))]
        return JSONResponse({"created": int(time.time()), "data": made, "usage": {"total_tokens": 100}})

    async def _refusal(self, request: Request) -> Response | None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._key is not None and not hmac.compare_digest(given.encode(), self._key.encode()):
            return _failure(401, f"Incorrect API key provided: {given}", "invalid_api_key")
        if self._strikes("rate_limited"):
            return _failure(429, "Rate limit reached", "rate_limit_exceeded", self.faults.retry_after)
        if self._strikes("no_credit"):
            return _failure(429, "You exceeded your current quota", "insufficient_quota")
        if self._strikes("broken"):
            return _failure(500, "The server had an error", "server_error")
        if self._strikes("filtered"):
            return _failure(400, "Your request was rejected by the safety system", "moderation_blocked")
        if self._strikes("hangs"):
            await self._released.wait()
        return HTMLResponse(PAGE) if self._strikes("html") else None

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

    def _strikes(self, fault: str) -> bool:
        left = getattr(self.faults, fault)
        if left > 0:
            setattr(self.faults, fault, left - 1)
            self.struck[fault] += 1
        return bool(left > 0)

    async def _show_tally(self) -> Response:
        return JSONResponse({"requests": len(self.requests), "struck": dict(self.struck)})

    async def _set_faults(self, request: Request) -> Response:
        known = {each.name for each in fields(Faults)}
        given = await request.json()
        if odd := sorted(given.keys() - known):
            return JSONResponse({"error": f"there is no fault {odd[0]!r}; there are {sorted(known)}"}, 400)
        for name, value in given.items():
            setattr(self.faults, name, value)
        return JSONResponse(asdict(self.faults))


def _failure(status: int, message: str, code: str, retry_after: float | None = None) -> JSONResponse:
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return JSONResponse({"error": error}, status, headers)
