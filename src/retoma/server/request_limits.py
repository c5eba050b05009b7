"""What surrounds every request: limits of size, shape and time, and an answer whatever happens."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Mapping
from uuid import uuid4

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retoma.define.codec import MAX_RESULT_BYTES
from retoma.errors import RetomaError
from retoma.logs import get_logger
from retoma.server.auth import Auth
from retoma.server.json_limits import JsonLimits
from retoma.server.problems import Problem, database_unavailable, problem_from_error
from retoma.tracebacks import release_frames

log = get_logger(__name__)

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_UNAUTHENTICATED_BODY_BYTES = 64 * 1024
MAX_QUERY_FIELDS = 1_000
CALLBACKS_PATH = "/api/v1/callbacks/"
RESPONSE_TIMEOUT_SECONDS = 20.0  # within which an answer begins
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
_DEFAULT_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_RAW_PAGE_HEADERS = [(name.lower().encode(), value.encode()) for name, value in PAGE_HEADERS.items()]


class RequestLimits:
    """Around the whole server: nothing of it hangs, and nothing that goes wrong shows more than an id."""

    def __init__(self, app: ASGIApp, large_bodies: Mapping[str, int], auth: Auth) -> None:
        """`large` are paths whose bodies may have so many bytes, and are left to their routes to read."""
        self._app = app
        self._large_bodies = large_bodies
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _ResponseSender(send)
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_SECONDS) as deadline:
                answer.deadline = deadline
                await self._handle(scope, receive, answer)
        except Exception as error:  # noqa: BLE001  (the one place that answers for what nobody foresaw)
            answer.deadline = None
            is_late = isinstance(error, TimeoutError) and not answer.request_complete
            response = (_request_timeout_problem() if is_late else problem_from_exception(scope, error)).to_response()
            release_frames(error)
            if not answer.started:
                await response(scope, receive, answer)

    async def _handle(self, scope: Scope, receive: Receive, response: _ResponseSender) -> None:
        if scope["query_string"].count(b"&") >= MAX_QUERY_FIELDS:
            raise Problem(400, "BAD_REQUEST", f"the query has more than {MAX_QUERY_FIELDS:,} fields")
        limit = self._large_bodies.get(scope["path"])
        if limit is None:
            body = await self._read_body(scope, receive)
            response.request_complete = True
            await self._app(scope, _replay_body(body, receive), response)
        else:
            _check_content_length(scope, limit)
            await self._app(scope, _LimitedReceive(receive, limit, response), response)

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body. Only of a caller who is known it is more than a few bytes, and is parsed after that."""
        limit = _body_limit(scope)
        _check_content_length(scope, limit)
        shape = JsonLimits() if b"json" in dict(scope["headers"]).get(b"content-type", b"").lower() else None
        is_known = False
        if _content_length(scope) > MAX_UNAUTHENTICATED_BODY_BYTES:
            await self._check_authenticated(scope)
            is_known = True
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise _ClientGone
            part, more = message.get("body", b""), message.get("more_body", False)
            size += len(part)
            if size > limit:
                raise body_too_large(limit)
            if size > MAX_UNAUTHENTICATED_BODY_BYTES and not is_known:
                await self._check_authenticated(scope)
                is_known = True
            if shape is not None:
                shape.feed(part)
            parts.append(part)
        return b"".join(parts)

    async def _check_authenticated(self, scope: Scope) -> None:
        """Raise a Problem unless the caller has a key or a session, or the callback that it calls exists."""
        path: str = scope["path"]
        if path.startswith(CALLBACKS_PATH):
            await self._auth.check_callback(Request(scope), path.removeprefix(CALLBACKS_PATH))
        else:
            await self._auth.check_authenticated(Request(scope))


class _ResponseSender:
    """Sends on, and knows whether the answer has begun, which is when its deadline no longer counts.

    `has_come` is whether the request is here whole.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.request_complete = False
        self.deadline: asyncio.Timeout | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            if self.deadline is not None and not self.deadline.expired():
                self.deadline.reschedule(None)
            message["headers"] = _add_default_headers(list(message.get("headers", ())))
        await self._send(message)


def _add_default_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Add the headers that every answer has, and those of what a browser shows as a page."""
    given = {name.lower(): value for name, value in headers}
    media_type = given.get(b"content-type", b"").lower()
    ours = _DEFAULT_HEADERS + (_RAW_PAGE_HEADERS if b"html" in media_type or b"xml" in media_type else [])
    return [*headers, *(each for each in ours if each[0] not in given)]


def _body_limit(scope: Scope) -> int:
    """A callback needs no key and may become a result: it is no larger than one."""
    return MAX_RESULT_BYTES if scope["path"].startswith(CALLBACKS_PATH) else MAX_BODY_BYTES


def _check_content_length(scope: Scope, limit: int) -> None:
    if _content_length(scope) > limit:
        raise body_too_large(limit)


def _content_length(scope: Scope) -> int:
    """Return how long the body is by its headers, or 0 if they do not say."""
    announced = dict(scope["headers"]).get(b"content-length", b"0")
    return int(announced[:20]) if announced.isdigit() else 0


class _LimitedReceive:
    """Lets a large body through part by part, each with as long as another request has in all.

    Once it has come whole, its route has as long as it needs: to unpack and keep it may take minutes.
    """

    def __init__(self, receive: Receive, limit: int, response: _ResponseSender) -> None:
        self._receive = receive
        self._bytes_left = self._limit = limit
        self._response = response

    async def __call__(self) -> Message:
        message = await self._receive()
        self._bytes_left -= len(message.get("body", b""))
        if self._bytes_left < 0:
            raise body_too_large(self._limit)
        deadline = self._response.deadline
        if message["type"] == "http.request" and deadline is not None and deadline.when() is not None:
            self._response.request_complete = not message.get("more_body", False)
            deadline.reschedule(
                None
                if self._response.request_complete
                else asyncio.get_running_loop().time() + RESPONSE_TIMEOUT_SECONDS
            )
        return message


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """The body that was read, and then whatever comes."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    def next_message() -> Awaitable[Message]:
        return _return_message(left.pop()) if left else receive()

    return next_message


async def _return_message(message: Message) -> Message:
    return message


class _ClientGone(Exception):
    """The caller has gone before it said everything."""


def _request_timeout_problem() -> Problem:
    return Problem(
        408, "REQUEST_TIMEOUT", f"nothing more of the request came within {RESPONSE_TIMEOUT_SECONDS:g} seconds"
    )


def body_too_large(limit: int) -> Problem:
    return Problem(413, "BODY_TOO_LARGE", f"the body is larger than {limit:,} bytes")


def problem_from_exception(scope: Scope, error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, TimeoutError):
        return database_unavailable()
    if isinstance(error, RetomaError):
        return problem_from_error(error)
    if isinstance(error, _ClientGone | ClientDisconnect):
        return Problem(400, "BAD_REQUEST", "the request ended early")
    return _unexpected_problem(scope, error)


def _unexpected_problem(scope: Scope, error: Exception) -> Problem:
    """Logged by its id. What the error says stays out, because it may quote what the caller sent."""
    number = uuid4().hex
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    where = " > ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames)
    route = scope.get("route")
    log.error(
        "request_failed",
        message="a request failed with an unexpected error",
        id=number,
        method=scope["method"],
        route=getattr(route, "path", None),
        error=type(error).__name__,
        where=where,
    )
    return Problem(500, "INTERNAL_ERROR", f"something went wrong here; the log has it under {number}", id=number)
