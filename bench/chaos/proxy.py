"""A proxy to PostgreSQL that fails on demand: it parses messages and knows their statements."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Self

_LENGTH = struct.Struct("!i")
_NO_LINGER = struct.pack("ii", 1, 0)
_WITHOUT_TYPE = {80877103, 80877104}  # a client asks for TLS or GSS first; it is refused
STATEMENT, BINDING, QUERY, SYNC = b"P", b"B", b"Q", b"S"
READY, ROW, NOTIFICATION, ERROR = b"Z", b"D", b"A", b"E"
_FATAL = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
_SHUTDOWN_MESSAGE = ERROR + _LENGTH.pack(4 + len(_FATAL)) + _FATAL


@dataclass(slots=True)
class Call:
    """One statement in transit. `rows` is known once it is answered."""

    sql: str
    message: bytes
    rows: int = 0

    @property
    def parameters(self) -> list[bytes | None]:
        """Return the parameters in binary form, None for null."""
        at = self.message.index(b"\0", self.message.index(b"\0", 5) + 1) + 1
        (formats,) = struct.unpack_from("!H", self.message, at)
        at += 2 + 2 * formats
        (count,) = struct.unpack_from("!H", self.message, at)
        at += 2
        found: list[bytes | None] = []
        for _ in range(count):
            (size,) = _LENGTH.unpack_from(self.message, at)
            at += 4
            found.append(None if size < 0 else self.message[at : at + size])
            at += max(0, size)
        return found


@dataclass(frozen=True, slots=True)
class Response:
    """A response that is due: of which call, and which calls are committed once it arrives."""

    call: Call | None = None
    commits: tuple[Call, ...] = ()


CallFilter = Callable[[Call], bool]
Side = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Forwards connections to a port of 127.0.0.1 or to a socket. Use it as an async context manager."""

    def __init__(self, server: int | Path) -> None:
        self.delay = 0.0
        self.drops_notifications = False
        # True: the request or its response is lost, and the connection is reset.
        self.loses_call: CallFilter = lambda call: False
        self.loses_answer: CallFilter = lambda call: False
        self.lost_calls = 0
        self.lost_answers = 0
        self.dropped_notifications = 0
        self.connections: set[ProxiedConnection] = set()
        self.open = asyncio.Event()  # cleared: traffic is held
        self.open.set()
        self._behind = server
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    def cut(self, *, reset: bool = True) -> int:
        """Close all connections, by a reset or a normal close. Return their number."""
        cut = list(self.connections)
        for passage in cut:
            passage.cut(reset=reset)
        return len(cut)

    def freeze(self, dice: Random) -> bool:
        """Freeze one connection: it forwards nothing any more, and neither side is notified."""
        if not self.connections:
            return False
        dice.choice(list(self.connections)).open.clear()
        return True

    def announce_shutdown(self) -> int:
        """Send idle clients the message that the server shuts down, and leave their connections open."""
        for passage in self.connections:
            passage.send_to_client(_SHUTDOWN_MESSAGE)
        return len(self.connections)

    async def blackhole(self, seconds: float) -> None:
        """Hold all traffic for a while, with connections left open, then forward it."""
        self.open.clear()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.open.set()

    async def _connect(self) -> Side:
        if isinstance(self._behind, Path):
            return await asyncio.open_unix_connection(self._behind)
        return await asyncio.open_connection("127.0.0.1", self._behind)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        try:
            await self.open.wait()
            with suppress(OSError):
                passage = ProxiedConnection(self, (reader, writer), await self._connect())
                self.connections.add(passage)
                try:
                    await passage.run()
                finally:
                    self.connections.discard(passage)
        finally:
            _end(writer, reset=False)
            self._passing.discard(task)


class ProxiedConnection:
    """One connection of a client, with its connection to the server."""

    def __init__(self, proxy: Proxy, client: Side, server: Side) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self._proxy = proxy
        self._client = client
        self._server = server
        self._statements: dict[bytes, str] = {}
        self._call: Call | None = None  # the call of the next sync
        self._transaction: list[Call] | None = None  # the calls of an open transaction
        self._due: deque[Response] = deque()
        self._held: list[bytes] = []  # a response that may still be lost

    async def run(self) -> None:
        """Forward until one side has ended."""
        try:
            if not await self._begin():
                return
            ways = [asyncio.ensure_future(self._forward_requests()), asyncio.ensure_future(self._forward_responses())]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.cut(reset=False)

    def cut(self, *, reset: bool) -> None:
        _end(self._client[1], reset=reset)
        _end(self._server[1], reset=reset)

    def send_to_client(self, message: bytes) -> None:
        self._client[1].write(message)

    async def _begin(self) -> bool:
        """Forward the first message, which has no type. Return False if there was only a cancel request."""
        reader, writer = self._client
        while True:
            head = await reader.readexactly(8)
            size, code = struct.unpack("!ii", head)
            if code in _WITHOUT_TYPE:
                writer.write(b"N")
                continue
            self._server[1].write(head + await reader.readexactly(size - 8))
            begins: bool = code >> 16 == 3
            return begins

    async def _forward_requests(self) -> None:
        frames = Frames()
        while data := await self._client[0].read(1 << 16):
            for message in frames.split(data):
                if self._is_lost_call(message):
                    return
                await self._send(self._server[1], message)

    async def _forward_responses(self) -> None:
        frames = Frames()
        while data := await self._server[0].read(1 << 16):
            for message in frames.split(data):
                self._held.append(message)
                if message[:1] == ROW and self._due and self._due[0].call:
                    self._due[0].call.rows += 1
                if message[:1] == READY and self._is_lost_answer():
                    return
            # A response is forwarded once complete, so it can be lost as a whole.
            if not any(response.commits for response in self._due):
                await self._release()

    async def _release(self) -> None:
        held, self._held = self._held, []
        if self._proxy.drops_notifications:
            kept = [message for message in held if message[:1] != NOTIFICATION]
            self._proxy.dropped_notifications += len(held) - len(kept)
            held = kept
        if held:
            await self._send(self._client[1], b"".join(held))

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        await self._proxy.open.wait()
        await self.open.wait()
        if self._proxy.delay:
            await asyncio.sleep(self._proxy.delay)
        writer.write(data)
        await writer.drain()

    def _is_lost_call(self, message: bytes) -> bool:
        kind = message[:1]
        if kind == STATEMENT:
            name, sql, _ = message[5:].split(b"\0", 2)
            self._statements[name] = sql.decode()
        elif kind == BINDING:
            _, name, _ = message[5:].split(b"\0", 2)
            self._call = Call(self._statements.get(name, ""), message)
        elif kind == QUERY:
            self._due.append(self._follow_transaction(message[5:-1].upper()))
        elif kind == SYNC:
            self._due.append(self._end_call())
        if self._call is None or kind != BINDING or not self._proxy.loses_call(self._call):
            return False
        self._proxy.lost_calls += 1
        self.cut(reset=True)
        return True

    def _follow_transaction(self, query: bytes) -> Response:
        calls = self._transaction or []
        if query.startswith(b"BEGIN"):
            self._transaction = []
        elif query.startswith((b"COMMIT", b"ROLLBACK;")):
            self._transaction = None
        return Response(commits=tuple(calls) if query.startswith(b"COMMIT") else ())

    def _end_call(self) -> Response:
        call, self._call = self._call, None
        if call is None or self._transaction is None:
            return Response(call, (call,) if call else ())
        self._transaction.append(call)
        return Response(call)

    def _is_lost_answer(self) -> bool:
        commits = self._due.popleft().commits if self._due else ()
        if not any(self._proxy.loses_answer(call) for call in commits):
            return False
        self._proxy.lost_answers += 1
        self.cut(reset=True)
        return True


class Frames:
    """Splits a stream of bytes into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def split(self, data: bytes) -> Iterator[bytes]:
        data = self._rest + data
        at = 0
        while len(data) - at >= 5:
            size = 1 + _LENGTH.unpack_from(data, at + 1)[0]
            if len(data) - at < size:
                break
            yield data[at : at + size]
            at += size
        self._rest = data[at:]


def _end(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    connection = writer.get_extra_info("socket")
    if reset and connection is not None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()
