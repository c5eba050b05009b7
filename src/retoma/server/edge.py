"""What surrounds every request: limits of size, shape and time, and an answer whatever happens."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Mapping
from uuid import uuid4

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retoma.define.codec import LARGEST_RESULT
from retoma.errors import RetomaError
from retoma.logs import get_logger
from retoma.server.door import Door
from retoma.server.json_shape import JsonShape
from retoma.server.problems import Problem, of_error, unavailable
from retoma.tracebacks import release_frames

log = get_logger("retoma.server")

LARGEST_BODY = 16 * 1024 * 1024
LARGEST_OF_STRANGERS = 64 * 1024
MOST_QUERY_FIELDS = 1_000
CALLBACKS = "/api/v1/callbacks/"
SECONDS = 20.0  # within which an answer begins
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
PAGE_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_RAW_PAGE_HEADERS = [(name.lower().encode(), value.encode()) for name, value in PAGE_HEADERS.items()]


class Edge:
    """Around the whole server: nothing of it hangs, and nothing that goes wrong shows more than an id."""

    def __init__(self, app: ASGIApp, large: Mapping[str, int], door: Door) -> None:
        """`large` are paths whose bodies may have so many bytes, and are left to their routes to read."""
        self._app = app
        self._large = large
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        try:
            async with asyncio.timeout(SECONDS) as deadline:
                answer.deadline = deadline
                await self._pass_on(scope, receive, answer)
        except Exception as error:  # noqa: BLE001  (the one place that answers for what nobody foresaw)
            answer.deadline = None
            is_late = isinstance(error, TimeoutError) and not answer.has_come
            response = (_too_slow() if is_late else problem_for(scope, error)).response()
            release_frames(error)
            if not answer.started:
                await response(scope, receive, answer)

    async def _pass_on(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        if scope["query_string"].count(b"&") >= MOST_QUERY_FIELDS:
            raise Problem(400, "BAD_REQUEST", f"the query has more than {MOST_QUERY_FIELDS:,} fields")
        limit = self._large.get(scope["path"])
        if limit is None:
            body = await self._read(scope, receive)
            answer.has_come = True
            await self._app(scope, _once(body, receive), answer)
        else:
            _check_announced(scope, limit)
            await self._app(scope, _Counted(receive, limit, answer), answer)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body. Only of a caller who is known it is more than a few bytes, and is parsed after that."""
        limit = _limit(scope)
        _check_announced(scope, limit)
        shape = JsonShape() if b"json" in dict(scope["headers"]).get(b"content-type", b"").lower() else None
        is_known = False
        if _announced(scope) > LARGEST_OF_STRANGERS:
            await self._check_known(scope)
            is_known = True
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise _Gone
            part, more = message.get("body", b""), message.get("more_body", False)
            size += len(part)
            if size > limit:
                raise too_large(limit)
            if size > LARGEST_OF_STRANGERS and not is_known:
                await self._check_known(scope)
                is_known = True
            if shape is not None:
                shape.feed(part)
            parts.append(part)
        return b"".join(parts)

    async def _check_known(self, scope: Scope) -> None:
        """Raise a Problem unless the caller has a key or a session, or the callback that it calls exists."""
        path: str = scope["path"]
        if path.startswith(CALLBACKS):
            await self._door.check_callback(Request(scope), path.removeprefix(CALLBACKS))
        else:
            await self._door.check_known(Request(scope))


class _Answer:
    """Sends on, and knows whether the answer has begun, which is when its deadline no longer counts.

    `has_come` is whether the request is here whole.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.has_come = False
        self.deadline: asyncio.Timeout | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            if self.deadline is not None and not self.deadline.expired():
                self.deadline.reschedule(None)
            message["headers"] = _completed(list(message.get("headers", ())))
        await self._send(message)


def _completed(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Add the headers that every answer has, and those of what a browser shows as a page."""
    given = {name.lower(): value for name, value in headers}
    media_type = given.get(b"content-type", b"").lower()
    ours = _HEADERS + (_RAW_PAGE_HEADERS if b"html" in media_type or b"xml" in media_type else [])
    return [*headers, *(each for each in ours if each[0] not in given)]


def _limit(scope: Scope) -> int:
    """A callback needs no key and may become a result: it is no larger than one."""
    return LARGEST_RESULT if scope["path"].startswith(CALLBACKS) else LARGEST_BODY


def _check_announced(scope: Scope, limit: int) -> None:
    if _announced(scope) > limit:
        raise too_large(limit)


def _announced(scope: Scope) -> int:
    """Return how long the body is by its headers, or 0 if they do not say."""
    announced = dict(scope["headers"]).get(b"content-length", b"0")
    return int(announced[:20]) if announced.isdigit() else 0


class _Counted:
    """Lets a large body through part by part, each with as long as another request has in all.

    Once it has come whole, its route has as long as it needs: to unpack and keep it may take minutes.
    """

    def __init__(self, receive: Receive, limit: int, answer: _Answer) -> None:
        self._receive = receive
        self._left = self._limit = limit
        self._answer = answer

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise too_large(self._limit)
        deadline = self._answer.deadline
        if message["type"] == "http.request" and deadline is not None and deadline.when() is not None:
            self._answer.has_come = not message.get("more_body", False)
            deadline.reschedule(None if self._answer.has_come else asyncio.get_running_loop().time() + SECONDS)
        return message


def _once(body: bytes, receive: Receive) -> Receive:
    """The body that was read, and then whatever comes."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    def next_message() -> Awaitable[Message]:
        return _given(left.pop()) if left else receive()

    return next_message


async def _given(message: Message) -> Message:
    return message


class _Gone(Exception):
    """The caller has gone before it said everything."""


def _too_slow() -> Problem:
    return Problem(408, "REQUEST_TIMEOUT", f"nothing more of the request came within {SECONDS:g} seconds")


def too_large(limit: int) -> Problem:
    return Problem(413, "BODY_TOO_LARGE", f"the body is larger than {limit:,} bytes")


def problem_for(scope: Scope, error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, TimeoutError):
        return unavailable()
    if isinstance(error, RetomaError):
        return of_error(error)
    if isinstance(error, _Gone | ClientDisconnect):
        return Problem(400, "BAD_REQUEST", "the request ended early")
    return _unforeseen(scope, error)


def _unforeseen(scope: Scope, error: Exception) -> Problem:
    """Logged by its id. What the error says stays out, because it may quote what the caller sent."""
    number = uuid4().hex
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    where = " > ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames)
    route = scope.get("route")
    log.error(
        "a request failed",
        id=number,
        method=scope["method"],
        route=getattr(route, "path", None),
        error=type(error).__name__,
        where=where,
    )
    return Problem(500, "INTERNAL_ERROR", f"something went wrong here; the log has it under {number}", id=number)
