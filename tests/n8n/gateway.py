"""A gateway between n8n and Retoma: it can be down, and it can lose answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Gateway:
    """Forwards each request to `target`, unless `is_down`. Of the answers, the first `losing` get lost."""

    target: str
    address: str = ""
    is_down: bool = False
    losing: int = 0
    dropped: int = 0  # connections that were dropped while it was down
    requests: list[bytes] = field(default_factory=list)

    def header(self, name: str) -> list[str]:
        """Return this header of every request that has it, in their order."""
        found = (re.search(rb"(?im)^%b: *(.*?)\r$" % name.encode(), request) for request in self.requests)
        return [match.group(1).decode() for match in found if match]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
            if self.is_down:
                self.dropped += 1
                return
            place = urlsplit(self.target)
            answers, there = await asyncio.open_connection(place.hostname, place.port)
            with closing(there):
                while request := await _read_message(reader):
                    if self.is_down:
                        self.dropped += 1
                        return
                    self.requests.append(request)
                    there.write(request)
                    answer = await _read_message(answers)
                    if self.losing:
                        self.losing -= 1
                        return
                    writer.write(answer)


@asynccontextmanager
async def open_gateway(target: str) -> AsyncIterator[Gateway]:
    gateway = Gateway(target)
    server = await asyncio.start_server(gateway.serve, "127.0.0.1", 0)
    gateway.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield gateway
    finally:
        server.close()


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    """Read a request or an answer, whose body has a length."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?im)^content-length: *(\d+)", head)
    return head + await reader.readexactly(int(length.group(1)) if length else 0)
