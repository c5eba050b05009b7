"""What surrounds every request: limits of size, shape and time, and an answer whatever happens."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Mapping
from uuid import uuid4

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retoma.define.codec import LARGEST_RESULT
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.server.door import Door
from retoma.server.problems import Problem, unavailable

log = get_logger("retoma.server")

LARGEST_BODY = 16 * 1024 * 1024
LARGEST_OF_STRANGERS = 1_000_000
CALLBACKS = "/api/v1/callbacks/"
DEEPEST_JSON = 64
MOST_BRACKETS = 100_000
SECONDS = 20.0  # within which an answer begins
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_SQUARE = bytes.maketrans(b"{}", b"[]")
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


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
                limit = self._large.get(scope["path"])
                if limit is None:
                    body = await _body(scope, receive)
                    answer.has_come = True
                    if len(body) > LARGEST_OF_STRANGERS:
                        await self._door.check_known(Request(scope))  # routes ask only after it is parsed
                    await self._app(scope, _once(body, receive), answer)
                else:
                    _check_announced(scope, limit)
                    await self._app(scope, _Counted(receive, limit, answer), answer)
        except Exception as error:  # noqa: BLE001  (the one place that answers for what nobody foresaw)
            answer.deadline = None
            is_late = isinstance(error, TimeoutError) and not answer.has_come
            problem = _too_slow() if is_late else problem_for(scope, error)
            if not answer.started:
                await problem.response()(scope, receive, answer)


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
            names = {name for name, _ in message.get("headers", ())}
            message["headers"] = [*message.get("headers", ()), *(each for each in _HEADERS if each[0] not in names)]
        await self._send(message)


def check_json(body: bytes) -> None:
    """Raise a Problem if this JSON is nested too deeply, has too many parts, or what no JSON has.

    It comes before anyone is asked for a key, and takes a fraction of a second whatever the body is.
    """
    if b"\0" in body:
        raise Problem(400, "BAD_REQUEST", "the body is not JSON in UTF-8")
    brackets = body.count(b"[") + body.count(b"{")
    if brackets > MOST_BRACKETS and _brackets(body).count(b"[") > MOST_BRACKETS:
        raise Problem(400, "TOO_MANY_PARTS", f"the body has more than {MOST_BRACKETS:,} arrays and objects")
    if brackets > DEEPEST_JSON and _is_too_deep(body):
        raise Problem(400, "TOO_DEEP", f"the body is nested more than {DEEPEST_JSON} levels deep")


def _is_too_deep(body: bytes) -> bool:
    """Whether pairs of brackets are left after the innermost were taken away so many times, or too many were opened."""
    left = _brackets(body)
    for _ in range(DEEPEST_JSON):
        left = left.replace(b"[]", b"")
    return b"[]" in left or left.count(b"[") > DEEPEST_JSON


def _brackets(body: bytes) -> bytes:
    """All that stand outside strings, as square ones."""
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
    # Two quotes side by side end a string and begin one: what is around them stays within or without.
    parts = unescaped.translate(_SQUARE, _NO_BRACKETS).replace(b'""', b"").split(b'"')
    return b"".join(parts[::2])


async def _body(scope: Scope, receive: Receive) -> bytes:
    limit = _limit(scope)
    _check_announced(scope, limit)
    body = await _read(receive, limit)
    if b"json" in dict(scope["headers"]).get(b"content-type", b"").lower():
        check_json(body)
    return body


def _limit(scope: Scope) -> int:
    """A callback needs no key and may become a result: it is no larger than one."""
    return LARGEST_RESULT if scope["path"].startswith(CALLBACKS) else LARGEST_BODY


def _check_announced(scope: Scope, limit: int) -> None:
    announced = dict(scope["headers"]).get(b"content-length", b"0")
    if announced.isdigit() and int(announced[:20]) > limit:
        raise too_large(limit)


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


async def _read(receive: Receive, limit: int) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise _Gone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise too_large(limit)
        more = message.get("more_body", False)
    return b"".join(parts)


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
    if isinstance(error, TimeoutError | DatabaseUnavailable):
        return unavailable()
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
