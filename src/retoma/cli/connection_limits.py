"""Limit connections, so many or slow ones cannot block other clients."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from retoma.logs import get_logger
from retoma.server.problems import RETRY_AFTER, Problem
from retoma.tracebacks import release_frames

log = get_logger(__name__)

HEADER_TIMEOUT_SECONDS = 20.0  # to receive the headers of a request, or the rest of an unread body
MAX_HEADER_BYTES = 16 * 1024  # request line and headers
MAX_HEADERS = 100
SLICE_BYTES = 2 * 1024  # bytes parsed at a time where chunks may be tiny
MAX_DESCRIPTORS = 65_536
RESERVED_DESCRIPTORS = 200  # for the database, files and newly accepted connections
SECONDS_BETWEEN_LOGS = 60.0


class ConnectionLimits:
    """Limit the connections of a server, in total and per address.

    A connection is unauthenticated until a request on it has a valid key or session, and again after each response.
    To make room, the server closes the oldest unauthenticated connection: of the same address if that has too many,
    otherwise of all.
    """

    def __init__(self, max_connections: int, per_address: int, is_proxy: Callable[[str], bool]) -> None:
        """`is_proxy` exempts an address from the limit per address, because many clients share it."""
        self._max_connections = max_connections
        self._per_address = per_address
        self._is_proxy = is_proxy
        self._open: set[LimitedProtocol] = set()
        self._unauthenticated: OrderedDict[LimitedProtocol, None] = OrderedDict()  # oldest first
        self._by_address: dict[str, OrderedDict[LimitedProtocol, None]] = {}
        self._events: Counter[str] = Counter()
        self._logged_at = -SECONDS_BETWEEN_LOGS

    def add(self, connection: LimitedProtocol) -> bool:
        """Add the connection. Return False if there is no room because all others are authenticated."""
        if len(self._open) >= self._max_connections and not self._close_oldest(self._unauthenticated):
            self._count_event("refused")
            return False
        self._open.add(connection)
        self.mark_unauthenticated(connection)
        return True

    def mark_unauthenticated(self, connection: LimitedProtocol) -> None:
        """Allow this connection to be closed to make room."""
        if connection not in self._open:
            return
        self.mark_authenticated(connection)
        self._unauthenticated[connection] = None
        same_address = self._by_address.setdefault(connection.address, OrderedDict())
        same_address[connection] = None
        if len(same_address) > self._per_address and not self._is_proxy(connection.address):
            self._close_oldest(same_address)

    def mark_authenticated(self, connection: LimitedProtocol) -> None:
        self._unauthenticated.pop(connection, None)
        if (same_address := self._by_address.get(connection.address)) is not None:
            same_address.pop(connection, None)
            if not same_address:
                del self._by_address[connection.address]

    def remove(self, connection: LimitedProtocol) -> None:
        self._open.discard(connection)
        self.mark_authenticated(connection)

    def _close_oldest(self, connections: OrderedDict[LimitedProtocol, None]) -> bool:
        oldest = next(iter(connections), None)
        if oldest is None:
            return False
        self.remove(oldest)
        oldest.transport.abort()
        self._count_event("closed")
        return True

    def _count_event(self, event: str) -> None:
        """Count the event, and log the counts at most once a minute: a flood must not fill the log."""
        self._events[event] += 1
        if time.monotonic() - self._logged_at >= SECONDS_BETWEEN_LOGS:
            log.warning(
                "connection_limit_reached", message="too many connections", open=len(self._open), **self._events
            )
            self._logged_at = time.monotonic()
            self._events.clear()


class LimitedProtocol(H11Protocol):
    """A connection with limits on the time and size of the headers."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(*args, **options)
        self.address = ""
        self._limits = limits
        self._timer: asyncio.TimerHandle | None = None
        self._unparsed = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow: _PausableFlowControl = _PausableFlowControl(transport)
        self.address = self.client[0] if self.client else ""
        state = {"transport": transport, "on_known": lambda: self._limits.mark_authenticated(self)}
        self.app_state = self.app_state | state
        if self._limits.add(self):
            self._start_timer()
        else:
            self._refuse(
                Problem(503, "TOO_MANY_CONNECTIONS", "the server has reached its connection limit", headers=RETRY_AFTER)
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.remove(self)
        self._unparsed = b""
        self._stop_timer()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        # Break the reference cycles: the connection and its buffers must not wait for garbage collection.
        self.app_state, self.scope, self.cycle = {}, None, None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._unparsed or (len(data) > SLICE_BYTES and not self._is_plain_body):
            self._unparsed += data
            self.flow.hold()
            if len(self._unparsed) == len(data):
                self._parse_slice()
        else:
            super().data_received(data)
            self._start_timer()

    @property
    def _is_plain_body(self) -> bool:
        """Whether what comes next is body without chunks, which costs the same for any content."""
        framing = {b"transfer-encoding"} & {name for name, _ in self.headers or ()}
        return self.conn.their_state is h11.SEND_BODY and not framing

    def _parse_slice(self) -> None:
        """Parse one slice, then yield to other connections: tiny chunks cost as much as large ones."""
        if self.transport.is_closing():
            return
        size = len(self._unparsed) if self._is_plain_body else SLICE_BYTES
        part, self._unparsed = self._unparsed[:size], self._unparsed[size:]
        super().data_received(part)
        self._start_timer()
        if self._unparsed:
            self.loop.call_soon(self._parse_slice)
        else:
            self.flow.release()

    def handle_events(self) -> None:
        if self.conn.their_state is h11.IDLE and _is_too_large(self.conn.trailing_data[0]):
            detail = f"the headers have more than {MAX_HEADER_BYTES:,} bytes or {MAX_HEADERS} lines"
            self._refuse(Problem(431, "HEADERS_TOO_LARGE", detail))
        else:
            super().handle_events()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        if (error := sys.exception()) is not None:
            release_frames(error)

    def on_response_complete(self) -> None:
        self._limits.mark_unauthenticated(self)
        super().on_response_complete()
        self._start_timer()

    def _start_timer(self) -> None:
        """Close the connection after HEADER_TIMEOUT_SECONDS if the client owes data and sends none."""
        if self.transport.is_closing() or not self._is_waiting_for_client:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEADER_TIMEOUT_SECONDS, self.transport.abort)

    @property
    def _is_waiting_for_client(self) -> bool:
        """Return whether part of the headers, or of a body that was already answered, is missing."""
        if self.conn.their_state is h11.IDLE:
            return self.cycle is None or bool(self.conn.trailing_data[0])
        return self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, problem: Problem) -> None:
        """Respond without the application, and close."""
        response = problem.to_response()
        headers = b"".join(b"%s: %s\r\n" % header for header in (*response.raw_headers, (b"connection", b"close")))
        self.transport.write(b"HTTP/1.1 %d Refused\r\n%s\r\n%s" % (problem.status_code, headers, bytes(response.body)))
        self.transport.close()


class _PausableFlowControl(FlowControl):
    """Stop reading while received data is not parsed yet."""

    _is_held = False

    def hold(self) -> None:
        self._is_held = True
        self.pause_reading()

    def release(self) -> None:
        self._is_held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self._is_held:
            super().resume_reading()


def raise_descriptor_limit() -> int:
    """Raise the limit of open files and connections as far as allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def _is_too_large(received: bytes) -> bool:
    """Return whether the headers received so far exceed the limits."""
    head = received.partition(b"\r\n\r\n")[0]
    return len(head) > MAX_HEADER_BYTES or head.count(b"\n") > MAX_HEADERS
