"""`python -m bench.live`: the cost of many live streams, with the server in its own process.

Each watcher is a connection that follows all runs. Memory is the growth of the server process per watcher; the delay
is from the commit of a start until the last watcher has received it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import uvloop

from bench.api import read_address
from bench.machine import describe
from bench.server import ROOT, open_server
from bench.testbed import Rig, Testbed
from bench.workloads import drain
from retoma.records import Scope

WATCHERS = 10_000
WARM = 100
AT_ONCE = 100
STARTS = 5


@dataclass(frozen=True)
class Measurement:
    watchers: int
    kilobytes_each: float
    opened_per_second: float
    delays: list[float]  # seconds until all watchers have received a start


class Watcher(asyncio.Protocol):
    """A watcher that records only whether it has received the expected event."""

    received = 0
    answered = 0
    lost = 0
    wanted = b"\0"

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not self._answered:
            self._answered = True
            Watcher.answered += data.startswith(b"HTTP/1.1 200")
        Watcher.received += Watcher.wanted in data

    def connection_lost(self, _: Exception | None) -> None:
        Watcher.lost += 1


@asynccontextmanager
async def server(testbed: Testbed) -> AsyncIterator[tuple[int, str, str]]:
    """Yield the process, the address and an API key of a server that is ready."""
    key = (await testbed.client.api_keys.create("bench", [Scope.RUNS_READ])).secret
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "retoma", "serve", "bench.workloads:app", "--port", "0"),
        cwd=ROOT,
        env=os.environ
        | {
            "RETOMA_DATABASE_URL": testbed.url,
            "RETOMA_RATE_LIMIT_PER_MINUTE": "10000000",
            "RETOMA_STREAMS_PER_KEY": "1000000",
        },
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process.pid, await read_address(process), key
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def watch(address: str, key: str, count: int) -> list[asyncio.BaseTransport]:
    """Open more connections, and wait for the first response on each."""
    place = urlsplit(address)
    request = f"GET /api/v1/live HTTP/1.1\r\nHost: {place.netloc}\r\nX-API-Key: {key}\r\n\r\n".encode()
    loop = asyncio.get_running_loop()
    made: list[asyncio.BaseTransport] = []
    first_answered = Watcher.answered
    for first in range(0, count, AT_ONCE):
        some = range(first, min(first + AT_ONCE, count))
        opened = await asyncio.gather(
            *(loop.create_connection(lambda: Watcher(request), place.hostname or "", place.port or 80) for _ in some)
        )
        made += [transport for transport, _ in opened]
        await _until("answered", first_answered + len(made))
    return made


async def measure_start_delay(testbed: Testbed, watchers: int) -> float:
    """Return the seconds from the commit of a start until all watchers have received it."""
    Watcher.received, Watcher.wanted = 0, b"event: start"
    began = time.perf_counter()
    await testbed.client.start(drain)
    await _until("received", watchers)
    return time.perf_counter() - began


async def measure(rig: Rig) -> Measurement:
    count = rig.count(WATCHERS, least=10)
    async with rig.testbed() as stage, server(stage) as (process, address, key):
        warm = await watch(address, key, min(WARM, count))
        before = memory(process)
        began = time.perf_counter()
        watching = await watch(address, key, count)
        took = time.perf_counter() - began
        each = (memory(process) - before) / count
        delays = [await measure_start_delay(stage, len(warm) + count) for _ in range(STARTS)]
        if Watcher.lost:
            raise RuntimeError(f"{Watcher.lost} connections were lost")
        for transport in [*warm, *watching]:
            transport.close()
    return Measurement(count, each, count / took, delays)


def memory(process: int) -> float:
    """Return its private memory in kilobytes."""
    status = Path(f"/proc/{process}/status").read_text()
    (found,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return float(found)


async def _until(what: str, enough: int) -> None:
    async with asyncio.timeout(60):
        while getattr(Watcher, what) < enough:  # noqa: ASYNC110  (an event for each of thousands would be measured too)
            await asyncio.sleep(0.002)


def raise_file_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _main(arguments: argparse.Namespace) -> None:
    raise_file_limit()
    async with open_server() as made:
        for name, value in (await describe(made)).items():
            print(f"{name}: {value}")
        figures = await measure(Rig(made, arguments.scale))
        await made.close()
    print(
        f"{figures.watchers:,} watchers on one process: {figures.kilobytes_each:.1f} kB each, "
        f"{figures.opened_per_second:,.0f} opened a second; all have received a start after "
        f"{median(figures.delays):.2f} s (worst {max(figures.delays):.2f} s)"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.live", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="a part of all watchers, for a quick look")
    uvloop.run(_main(parser.parse_args()))
