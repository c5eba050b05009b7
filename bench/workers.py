"""Worker processes that wait until the runs are started."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bench.server import ROOT

LINKS = 2  # as many connections as a worker has
SECONDS_TO_END = 10


@dataclass(frozen=True)
class Usage:
    cpu_seconds: float
    megabytes: float


class WorkerProcess:
    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._orders = process.stdin
        self._answers = process.stdout

    async def wait_until_ready(self) -> Usage:
        """Wait until it is ready, and return its resource usage so far."""
        self.at_first = await self._read_usage()
        return self.at_first

    def go(self) -> None:
        self._order("go")

    async def usage(self) -> Usage:
        self._order("usage")
        return await self._read_usage()

    async def end(self) -> None:
        self._orders.close()
        try:
            await asyncio.wait_for(self._process.wait(), SECONDS_TO_END)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _order(self, order: str) -> None:
        self._orders.write(f"{order}\n".encode())

    async def _read_usage(self) -> Usage:
        line = await self._answers.readline()
        if not line:
            raise RuntimeError(f"a worker ended with {await self._process.wait()}; what it said is above")
        return Usage(**json.loads(line))


@asynccontextmanager
async def workers(
    url: str, concurrency: int, *, processes: int = 1, links: int = LINKS, held: bool = True
) -> AsyncIterator[list[WorkerProcess]]:
    """Start workers for all pipelines. They claim nothing before `go`, unless `held` is False."""
    async with AsyncExitStack() as stack:
        team = [await _start_worker(stack, url, concurrency, links) for _ in range(processes)]
        for worker in team:
            await worker.wait_until_ready()
            if not held:
                worker.go()
        yield team


async def _start_worker(stack: AsyncExitStack, url: str, concurrency: int, links: int) -> WorkerProcess:
    command = [sys.executable, "-m", "bench.worker_main", str(concurrency), str(links)]
    environment = os.environ | {"RETOMA_DATABASE_URL": url}
    worker = WorkerProcess(
        await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment, stdin=PIPE, stdout=PIPE)
    )
    stack.push_async_callback(worker.end)
    return worker
