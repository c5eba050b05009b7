"""Connections that send nothing, half of a request or too much do not affect authenticated clients."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import h11
import httpx2
import pytest

from retoma.cli import connection_limits
from retoma.cli.connection_limits import MAX_HEADER_BYTES, MAX_HEADERS, LimitedProtocol, raise_descriptor_limit
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.records import Scope
from retoma.server import make_server
from retoma.settings import Settings
from retoma.store.database import Database
from retoma.testing import sandbox
from tests.conftest import empty_database
from tests.server.api import app
from tests.wait_timeout import WAIT_TIMEOUT

HALF = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
LIVE = b"GET /api/v1/live HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\n\r\n"


class RunningServer:
    """A server that listens, a key for it, and sockets that are closed at the end."""

    def __init__(self, url: str, key: str, sockets: ExitStack) -> None:
        self.url = url
        self.key = key
        self._port = int(url.rpartition(":")[2])
        self._sockets = sockets

    async def connect(self, sent: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
        made = self._sockets.enter_context(socket.socket())
        made.setblocking(False)
        made.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", self._port))
        await asyncio.get_running_loop().sock_sendall(made, sent)
        return made

    async def ask(self, path: str = "/api/v1/runs", key: str | None = None) -> int:
        """Return the status of the answer, over a separate connection."""
        async with httpx2.AsyncClient(timeout=WAIT_TIMEOUT) as client:
            headers = {"X-API-Key": self.key if key is None else key}
            return (await client.get(f"{self.url}{path}", headers=headers)).status_code


async def read(connection: socket.socket, until: bytes | None = None) -> bytes:
    """Return the data that arrives before this marker, or before the other side closes."""
    found = b""
    async with asyncio.timeout(WAIT_TIMEOUT):
        while until is None or until not in found:
            try:
                part = await asyncio.get_running_loop().sock_recv(connection, 65_536)
            except ConnectionError:
                break
            if not part:
                break
            found += part
    return found


def is_open(connection: socket.socket) -> bool:
    """Return whether the other side has not closed the connection."""
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


@asynccontextmanager
async def open_server(database: Database, **settings: Any) -> AsyncIterator[RunningServer]:
    await empty_database(database)
    settings_ = Settings(port=0, **settings)
    async with sandbox(app, database) as made:
        key = (await made.client.api_keys.create("test", [Scope.ADMIN])).secret
        server = make_server(app, made.client, settings_)
        with bind_socket(settings_, "127.0.0.1") as listening, ExitStack() as sockets:
            async with run_server(server, listening, settings_):
                yield RunningServer(get_address(listening), key, sockets)
                sockets.close()


@pytest.fixture
def connections_made(monkeypatch: pytest.MonkeyPatch) -> list[LimitedProtocol]:
    """The server's side of each connection, from its beginning."""
    made: list[LimitedProtocol] = []
    connection_made = LimitedProtocol.connection_made

    def noted(self: LimitedProtocol, transport: asyncio.Transport) -> None:
        made.append(self)
        connection_made(self, transport)

    monkeypatch.setattr(LimitedProtocol, "connection_made", noted)
    return made


async def test_two_thousand_idle_connections_block_nobody(database: Database) -> None:
    assert raise_descriptor_limit() > 2 * 2_000 + 100
    async with open_server(database) as here:
        waiting = [await here.connect(HALF if number % 2 else b"") for number in range(2_000)]
        assert [await here.ask(), await here.ask("/healthz"), await here.ask(key="wrong")] == [200, 200, 401]
        assert sum(map(is_open, waiting)) <= Settings().max_connections_per_address


async def test_the_total_limit_closes_the_oldest_unauthenticated_connection(database: Database) -> None:
    async with open_server(database, max_connections=20) as here:
        stream = await here.connect(LIVE % here.key.encode())
        assert b"200 OK" in await read(stream, b"retry: 2000")
        waiting = [await here.connect(HALF, source=f"127.0.1.{number + 1}") for number in range(60)]
        assert await here.ask() == 200
        assert is_open(stream)
        assert [is_open(each) for each in waiting[:40]] == [False] * 40
        assert await read(waiting[0]) == b""


async def test_a_stream_of_an_authenticated_client_survives_connections_from_its_address(database: Database) -> None:
    async with open_server(database, max_connections_per_address=5) as here:
        streams = []
        for _ in range(8):
            streams.append(await here.connect(LIVE % here.key.encode()))
            assert b"200 OK" in await read(streams[-1], b"retry: 2000")
        waiting = [await here.connect(HALF) for _ in range(20)]
        assert await here.ask() == 200
        assert all(map(is_open, streams))
        assert sum(map(is_open, waiting)) <= 5


async def test_a_trusted_proxy_may_open_any_number_of_connections(database: Database) -> None:
    async with open_server(database, max_connections_per_address=5, trusted_proxies="127.0.0.1") as here:
        waiting = [await here.connect(HALF) for _ in range(20)]
        assert await here.ask() == 200
        assert all(map(is_open, waiting))


async def test_a_server_full_of_authenticated_clients_reports_it(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_server(database, max_connections=2) as here:
        streams = [await here.connect(LIVE % here.key.encode()) for _ in range(2)]
        for stream in streams:
            await read(stream, b"retry: 2000")
        for _ in range(3):
            answer = await read(await here.connect())
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 2" in answer.lower()
            assert b'"code": "TOO_MANY_CONNECTIONS"' in answer
        events = [vars(record).get("event") for record in caplog.records]
        assert events.count("connection_limit_reached") == 1


@pytest.mark.parametrize("sent", [b"", HALF, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + HALF])
async def test_missing_headers_close_the_connection(
    database: Database, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connection_limits, "HEADER_TIMEOUT_SECONDS", 0.05)
    async with open_server(database) as here:
        assert b"X-Slow" not in await read(await here.connect(sent))


async def test_slow_headers_get_no_extra_time(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEADER_TIMEOUT_SECONDS", 0.2)
    async with open_server(database) as here:
        trickling = await here.connect(HALF)
        async with asyncio.timeout(WAIT_TIMEOUT):
            while is_open(trickling):
                await asyncio.sleep(0.01)
                try:
                    trickling.send(b"x")
                except ConnectionError:
                    break


async def test_a_slow_rejected_body_closes_the_connection(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEADER_TIMEOUT_SECONDS", 0.05)
    async with open_server(database) as here:
        head = b"POST /api/v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n"
        assert b"401 Unauthorized" in await read(await here.connect(head + b"x" * 1_000))


async def test_a_connection_between_two_requests_does_not_time_out(
    connections_made: list[LimitedProtocol], database: Database
) -> None:
    async with open_server(database) as here, httpx2.AsyncClient(timeout=WAIT_TIMEOUT) as client:
        for _ in range(2):
            assert (await client.get(f"{here.url}/healthz")).status_code == 200
        assert [each._timer for each in connections_made] == [None]


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n" + b"a:\r\n" * (MAX_HEADERS + 1) + b"\r\n",
        b"GET / HTTP/1.1\n" + b"a:\n" * (MAX_HEADERS + 1) + b"\n",
        b"GET /?" + b"x" * MAX_HEADER_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEADER_BYTES,
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n" + b"a:\r\n" * (MAX_HEADERS + 1) + b"\r\n",
    ],
    ids=["lines", "bare lines", "address", "value", "second request"],
)
async def test_large_headers_are_rejected_before_they_are_parsed(
    database: Database, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    async with open_server(database) as here:
        answer = await read(await here.connect(head))
        assert b"HTTP/1.1 431 " in answer
        assert b'"code": "HEADERS_TOO_LARGE"' in answer


async def test_parsing_tiny_chunks_yields_to_other_work(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    receive_data = h11.Connection.receive_data

    def receive(self: h11.Connection, data: bytes) -> None:
        sizes.append(len(data))
        receive_data(self, data)

    monkeypatch.setattr(h11.Connection, "receive_data", receive)
    async with open_server(database) as here:
        named = b"POST /api/v1/runs HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nConnection: close\r\n" % here.key.encode()
        sent = named + b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
        body = b'{"pipeline": "film"}' + b" " * 20_000
        sent += b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        assert b"202 Accepted" in await read(await here.connect(sent))
        assert max(sizes) <= connection_limits.SLICE_BYTES
        assert sum(sizes) == len(sent)


async def test_a_closed_connection_is_freed_without_garbage_collection(
    connections_made: list[LimitedProtocol], database: Database
) -> None:
    async with open_server(database, max_connections_per_address=3) as here:
        with no_collection():
            for sent in (b"", HALF, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"nonsense\r\n\r\n") * 3:
                connection = await here.connect(sent)
                await here.ask()
                connection.close()
            made = weakref.WeakSet(connections_made)
            connections_made.clear()
            async with asyncio.timeout(WAIT_TIMEOUT):
                while made:  # noqa: ASYNC110  (nobody tells)
                    await asyncio.sleep(0.01)


@contextmanager
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_the_file_descriptor_limit_is_raised() -> None:
    assert raise_descriptor_limit() == raise_descriptor_limit() > 0
