"""Servers on this machine that answer as a test specifies, and record their requests."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ReceivedRequest:
    """One request, as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
# Writes what it likes, and the connection ends.
Responder = Callable[[Writer], Awaitable[None]]


@dataclass
class Receiver:
    """Answers with the next entry of `script`; once that is used up with `answer`, or with 200."""

    url: str = ""
    port: int = 0
    script: list[Responder] = field(default_factory=list)
    requests: list[ReceivedRequest] = field(default_factory=list)
    answer: Callable[[ReceivedRequest], Responder] | None = None
    connections: int = 0

    async def serve(self, reader: Reader, writer: Writer) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                self.requests.append(await _request(reader))
                if self.script:
                    await self.script.pop(0)(writer)
                    break
                if self.answer is not None:
                    await self.answer(self.requests[-1])(writer)
                    break
                writer.write(_plain(200, b"", {}))
                await writer.drain()
        writer.close()


@asynccontextmanager
async def receiver(*script: Responder, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    made = Receiver(script=list(script))
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(asyncio.CancelledError):
            await made.serve(reader, writer)
        writer.close()
        tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    made.url = f"{'https' if tls else 'http'}://127.0.0.1:{made.port}/hook"
    try:
        yield made
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def respond_with(status: int, body: bytes = b"", **headers: str) -> Responder:
    async def act(writer: Writer) -> None:
        writer.write(_plain(status, body, headers))
        await writer.drain()

    return act


def hang_up() -> Responder:
    """Accept the request and never respond."""

    async def act(writer: Writer) -> None:
        writer.transport.abort()

    return act


def _plain(status: int, body: bytes, headers: dict[str, str]) -> bytes:
    all_headers = {
        "content-length": str(len(body)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in all_headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _request(reader: Reader) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    method, path, _ = first.split(" ")
    return ReceivedRequest(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))
