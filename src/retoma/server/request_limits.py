"""Limit the size, JSON depth and duration of every request, and answer every error."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Mapping
from uuid import uuid4

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retoma.define.codec import MAX_RESULT_BYTES
from retoma.errors import RetomaError
from retoma.logs import get_logger
from retoma.server.auth import Auth
from retoma.server.json_limits import JsonLimits, check_surrogates
from retoma.server.problems import Problem, database_unavailable, to_problem
from retoma.tracebacks import release_frames

log = get_logger(__name__)

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_UNAUTHENTICATED_BODY_BYTES = 64 * 1024
MAX_QUERY_FIELDS = 1_000
MAX_COOKIE_ESCAPES = 50  # backslashes in the cookies of a request
CALLBACKS_PATH = "/api/v1/callbacks/"
RESPONSE_TIMEOUT_SECONDS = 20.0  # until the response starts
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
    """Wrap the whole server: no request hangs, and an unexpected error reveals only its id."""

    def __init__(self, app: ASGIApp, large_bodies: Mapping[str, int], auth: Auth) -> None:
        """`large_bodies` maps a path to its limit in bytes. Its route reads the body itself, as a stream."""
        self._app = app
        self._large_bodies = large_bodies
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sender = _ResponseSender(send)
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_SECONDS) as deadline:
                sender.deadline = deadline
                await self._handle(scope, receive, sender)
        except Exception as error:  # noqa: BLE001  (the one place that handles unexpected errors)
            sender.deadline = None
            is_late = isinstance(error, TimeoutError) and not sender.request_complete
            late = f"the request was incomplete and no data arrived for {RESPONSE_TIMEOUT_SECONDS:g} seconds"
            problem = Problem(408, "REQUEST_TIMEOUT", late) if is_late else problem_from_exception(scope, error)
            response = problem.to_response()
            release_frames(error)
            if not sender.started:
                await response(scope, receive, sender)

    async def _handle(self, scope: Scope, receive: Receive, response: _ResponseSender) -> None:
        if scope["query_string"].count(b"&") >= MAX_QUERY_FIELDS:
            raise Problem(400, "BAD_REQUEST", f"the query has more than {MAX_QUERY_FIELDS:,} fields")
        _drop_escaped_cookies(scope)
        limit = self._large_bodies.get(scope["path"])
        if limit is None:
            body = await self._read_body(scope, receive)
            response.request_complete = True
            await self._app(scope, _replay_body(body, receive), response)
        else:
            _check_content_length(scope, limit)
            await self._app(scope, _LimitedReceive(receive, limit, response), response)

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body. Authenticate the caller before reading more than MAX_UNAUTHENTICATED_BODY_BYTES."""
        limit = _body_limit(scope)
        _check_content_length(scope, limit)
        json_limits = JsonLimits() if b"json" in dict(scope["headers"]).get(b"content-type", b"").lower() else None
        is_authenticated = False
        if _content_length(scope) > MAX_UNAUTHENTICATED_BODY_BYTES:
            await self._check_authenticated(scope)
            is_authenticated = True
        chunks, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise _ClientGone
            chunk, more = message.get("body", b""), message.get("more_body", False)
            size += len(chunk)
            if size > limit:
                raise body_too_large(limit)
            if size > MAX_UNAUTHENTICATED_BODY_BYTES and not is_authenticated:
                await self._check_authenticated(scope)
                is_authenticated = True
            if json_limits is not None:
                json_limits.feed(chunk)
            chunks.append(chunk)
        body = b"".join(chunks)
        if json_limits is not None and not scope["path"].startswith(CALLBACKS_PATH):  # a callback may be any text
            check_surrogates(body)
        return body

    async def _check_authenticated(self, scope: Scope) -> None:
        """Raise a Problem unless the request has a valid key or session, or calls an existing callback."""
        path: str = scope["path"]
        if path.startswith(CALLBACKS_PATH):
            await self._auth.check_callback(Request(scope), path.removeprefix(CALLBACKS_PATH))
        else:
            await self._auth.check_authenticated(Request(scope))


class _ResponseSender:
    """Forward the response, and lift the deadline once it has started.

    `request_complete` tells whether the whole request was received.
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
    """Add the headers of every response and, if a browser would render it as a page, those of pages."""
    present = {name.lower(): value for name, value in headers}
    media_type = present.get(b"content-type", b"").lower()
    defaults = _DEFAULT_HEADERS + (_RAW_PAGE_HEADERS if b"html" in media_type or b"xml" in media_type else [])
    return [*headers, *(each for each in defaults if each[0] not in present)]


def _drop_escaped_cookies(scope: Scope) -> None:
    """Leave out cookies with escapes if there are many escapes. Retoma's own cookies have none.

    Python before 3.11.10 and 3.12.6 takes quadratic time to read them: 120 ms for 15 kB.
    """
    escapes = sum(value.count(b"\\") for name, value in scope["headers"] if name == b"cookie")
    if escapes > MAX_COOKIE_ESCAPES:
        scope["headers"] = [
            (name, _join_plain_cookies(value) if name == b"cookie" else value) for name, value in scope["headers"]
        ]


def _join_plain_cookies(cookies: bytes) -> bytes:
    return b";".join(each for each in cookies.split(b";") if b"\\" not in each)


def _body_limit(scope: Scope) -> int:
    """Return the size limit. A callback needs no key and may become a result, so it has the limit of a result."""
    return MAX_RESULT_BYTES if scope["path"].startswith(CALLBACKS_PATH) else MAX_BODY_BYTES


def _check_content_length(scope: Scope, limit: int) -> None:
    if _content_length(scope) > limit:
        raise body_too_large(limit)


def _content_length(scope: Scope) -> int:
    """Return the declared length of the body, or 0 if there is none."""
    declared = dict(scope["headers"]).get(b"content-length", b"0")
    return int(declared[:20]) if declared.isdigit() else 0


class _LimitedReceive:
    """Pass on a large body chunk by chunk. Each chunk restarts the response timeout.

    After the last chunk there is no timeout: unpacking and storing the body may take minutes.
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
    """Return a `receive` that yields the body that was read, then later messages."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return pending.pop() if pending else await receive()

    return next_message


class _ClientGone(Exception):
    """The client disconnected before the request was complete."""


def body_too_large(limit: int) -> Problem:
    return Problem(413, "BODY_TOO_LARGE", f"the body is larger than {limit:,} bytes")


def problem_from_exception(scope: Scope, error: Exception) -> Problem:
    if isinstance(error, Problem | RetomaError):
        return to_problem(error)
    if isinstance(error, TimeoutError):
        return database_unavailable()
    if isinstance(error, _ClientGone | ClientDisconnect):
        return Problem(400, "BAD_REQUEST", "the connection closed before the request was complete")
    return _unexpected_problem(scope, error)


def _unexpected_problem(scope: Scope, error: Exception) -> Problem:
    """Log the error under an id. Leave out its message, which may quote data from the request."""
    error_id = uuid4().hex
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    where = " > ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames)
    route = scope.get("route")
    log.error(
        "request_failed",
        message="a request failed with an unexpected error",
        id=error_id,
        method=scope["method"],
        route=getattr(route, "path", None),
        error=type(error).__name__,
        where=where,
    )
    return Problem(500, "INTERNAL_ERROR", f"internal error; see the server log for id {error_id}", id=error_id)
