"""HTTP requests with a total timeout and a limit on the body that is read."""

from __future__ import annotations

import asyncio
import json as json_
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import httpcore2
import httpx2

from retoma.errors import NoResponse
from retoma.outgoing.connector import GuardedConnector, Resolver, resolve_by_system
from retoma.outgoing.guard import Guard
from retoma.trace_context import begin_call, end_call
from retoma.tracing import TRACES

CONNECT_SECONDS = 5.0
USER_AGENT = f"Retoma/{version('retoma')}"
_MAX_CONNECTIONS = 200
_IDLE_SECONDS = 15.0
# With these errors nothing of the request can have reached the other side.
_BEFORE_SENDING = (httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.PoolTimeout)

Headers = Mapping[str, str]


@dataclass(frozen=True)
class Response:
    """A response. Header names are in lower case. `is_cut` means that the body exceeded the limit."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_cut: bool = False

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Return the parsed body. Raise ValueError if it is not JSON, or was cut."""
        if self.is_cut:
            raise ValueError(f"the response exceeds the limit of {len(self.body)} bytes, and was cut")
        return json_.loads(self.body)


class HttpClient:
    """Shares connections between all its requests; `close` ends them. Use it from one event loop."""

    def __init__(self, guard: Guard | None = None, *, resolve: Resolver = resolve_by_system) -> None:
        self.guard = guard or Guard()
        self._pool = httpcore2.AsyncConnectionPool(
            max_connections=_MAX_CONNECTIONS,
            max_keepalive_connections=_MAX_CONNECTIONS // 4,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=GuardedConnector(self.guard, resolve),
        )

    async def close(self) -> None:
        await self._pool.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Headers | None = None,
        content: bytes | AsyncIterator[bytes] | None = None,
        json: Any = None,
        timeout: float = 10.0,
        limit: int = 64_000,
    ) -> Response:
        """Return the response, whatever its status. Raise UnsafeUrl, or NoResponse if none comes within `timeout`.

        Reads at most `limit` bytes of the body, without decompressing them.
        """
        if json is not None:
            content = json_.dumps(json).encode()
            headers = {"content-type": "application/json", **(headers or {})}
        async with self._open_response(method, url, headers, content, timeout) as response:
            body, is_cut = await _read_body(response, limit)
            return Response(response.status, _decode_headers(response), body, is_cut)

    async def download(
        self, url: str, path: Path, *, limit: int, timeout: float = 60.0, headers: Headers | None = None
    ) -> Response:
        """Write the body to `path`, completely or not at all. The returned response has an empty body.

        Raise NoResponse if the status is not 200, or if the body is longer than `limit` bytes.
        """
        part = path.with_name(f"{path.name}.{uuid4().hex[:8]}.part")
        try:
            async with self._open_response("GET", url, headers, None, timeout) as response:
                _check_download(response, limit)
                await _write_body(response, part, limit)
                part.rename(path)
                return Response(response.status, _decode_headers(response), b"")
        finally:
            part.unlink(missing_ok=True)

    @asynccontextmanager
    async def _open_response(
        self, method: str, url: str, headers: Headers | None, content: Any, timeout: float
    ) -> AsyncIterator[httpcore2.Response]:
        target = self.guard.check(url)
        call = begin_call(method, target.host, target.port) if TRACES.is_on else None
        try:
            async with (
                asyncio.timeout(timeout),
                self._pool.stream(
                    method,
                    httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path),
                    headers=_build_headers(headers),
                    content=content,
                    extensions={"timeout": {"connect": min(CONNECT_SECONDS, timeout), "pool": timeout}},
                ) as response,
            ):
                if call is not None:
                    call.status = response.status
                yield response
        except TimeoutError as error:
            raise NoResponse(
                f"{target.origin} did not send a complete response within {timeout:g} s", maybe_sent=True
            ) from error
        except _BEFORE_SENDING as error:
            raise NoResponse(
                f"{target.origin} cannot be reached: {_describe_error(error)}", maybe_sent=False
            ) from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
            raise NoResponse(
                f"{target.origin} broke the connection: {_describe_error(error)}", maybe_sent=True
            ) from error
        finally:
            if call is not None:
                end_call(call, sys.exc_info()[1])


async def _read_body(response: httpcore2.Response, limit: int) -> tuple[bytes, bool]:
    body = bytearray()
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) > limit:
            return bytes(body[:limit]), True
    return bytes(body), False


async def _write_body(response: httpcore2.Response, part: Path, limit: int) -> None:
    written = 0
    file = await asyncio.to_thread(part.open, "xb")
    try:
        async for chunk in response.aiter_stream():
            written += len(chunk)
            if written > limit:
                raise _build_too_long(limit)
            await asyncio.to_thread(file.write, chunk)
    finally:
        await asyncio.to_thread(file.close)


def _check_download(response: httpcore2.Response, limit: int) -> None:
    if response.status != 200:
        moved = "; redirects are not followed: use the final URL" if 300 <= response.status < 400 else ""
        raise NoResponse(
            f"the file could not be downloaded: the server answered {response.status}{moved}", maybe_sent=True
        )
    length = _decode_headers(response).get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise _build_too_long(limit)


def _build_too_long(limit: int) -> NoResponse:
    return NoResponse(f"the file is longer than {limit} bytes", maybe_sent=True)


def _build_headers(headers: Headers | None) -> list[tuple[str, str]]:
    """Return the headers, with our defaults. Compression is not requested, because bodies are not decompressed."""
    ours = {"accept": "*/*", "accept-encoding": "identity", "user-agent": USER_AGENT}
    return list({**ours, **{name.lower(): value for name, value in (headers or {}).items()}}.items())


def _decode_headers(response: httpcore2.Response) -> dict[str, str]:
    """Return the headers as text. Values of a repeated header are joined with commas."""
    return dict(httpx2.Headers(response.headers, encoding="latin-1"))


def _describe_error(error: Exception) -> str:
    return str(error) or type(error).__name__
