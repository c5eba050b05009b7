"""A proxy in front of a WordPress that loses answers: the site has created a post, and nobody learns it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

_KEY = re.compile(rb'"idempotency_key": ?"([0-9a-f]{64})"')
_CHUNK = 65536


@dataclass
class CuttingProxy:
    """`may_cut` chooses the publications, by their keys, whose answer is lost if it is 201. Each connection has one
    request, as PHP's web server closes it afterwards. `lost` are the keys of the lost answers."""

    upstream: int
    may_cut: Callable[[str], bool]
    lost: set[str] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[int]:
        """Yield the port."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # the site is down, or the caller was killed
            async with _closing(writer):
                site_reader, site_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
                async with _closing(site_writer):
                    await self._exchange(reader, site_writer, site_reader, writer)

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        site_writer: asyncio.StreamWriter,
        site_reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        request = bytearray()
        sending = asyncio.create_task(_copy(reader, site_writer, request))
        try:
            answer = await site_reader.read(_CHUNK)
            if answer.split(b" ", 2)[1:2] == [b"201"] and self._loses_answer_to(bytes(request)):
                return
            while answer:
                writer.write(answer)
                await writer.drain()
                answer = await site_reader.read(_CHUNK)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def _loses_answer_to(self, request: bytes) -> bool:
        found = _KEY.search(request)
        key = found[1].decode() if found else ""
        if not key or key in self.lost or not self.may_cut(key):
            return False
        self.lost.add(key)
        return True


@asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
        await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, copied: bytearray) -> None:
    while chunk := await reader.read(_CHUNK):
        copied += chunk
        writer.write(chunk)
        await writer.drain()
