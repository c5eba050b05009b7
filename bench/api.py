"""`python -m bench.api`: the cost of starting runs over HTTP, with the server in its own process.

Latency is open-loop: each call has a scheduled time, independent of earlier calls, and is measured from then.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median, quantiles

import httpx2
import uvloop

from bench.machine import describe
from bench.server import ROOT, open_server
from bench.testbed import Rig, Testbed
from bench.workers import workers
from retoma.records import Scope

STARTS_A_SECOND = 100
BULK = 10_000
SECONDS_TO_BEGIN = 30


@asynccontextmanager
async def open_client(testbed: Testbed) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client with an API key for a server that is ready."""
    key = (await testbed.client.api_keys.create("bench", [Scope.RUNS_WRITE])).secret
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "retoma", "serve", "bench.workloads:app", "--port", "0"),
        cwd=ROOT,
        env=os.environ | {"RETOMA_DATABASE_URL": testbed.url, "RETOMA_RATE_LIMIT_PER_MINUTE": "10000000"},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        address = await asyncio.wait_for(read_address(process), SECONDS_TO_BEGIN)
        async with httpx2.AsyncClient(base_url=address, headers={"X-API-Key": key}, timeout=60) as client:
            yield client
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def read_address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = []
    async for line in process.stderr:
        said.append(line.decode())
        if found := re.search(r"http://[\d.]+:\d+", said[-1]):
            return found[0]
    raise RuntimeError(f"the server ended before it was ready: {''.join(said)}")


async def measure_paced_starts(client: httpx2.AsyncClient, count: int, rate: float = STARTS_A_SECOND) -> list[float]:
    """Return the milliseconds of each of `count` starts at a fixed rate per second."""
    began = time.monotonic() + 0.1
    return await asyncio.gather(*(_start(client, began + number / rate) for number in range(count)))


async def _start(client: httpx2.AsyncClient, due: float) -> float:
    await asyncio.sleep(max(0.0, due - time.monotonic()))
    answer = await client.post("/api/v1/runs", json={"pipeline": "drain"})
    answer.raise_for_status()
    return (time.monotonic() - due) * 1_000


async def measure_bulk_start(client: httpx2.AsyncClient, count: int) -> float:
    """Return runs per second of one bulk call."""
    body = {"pipeline": "drain", "inputs": [{"n": number} for number in range(count)]}
    began = time.perf_counter()
    answer = await client.post("/api/v1/runs/bulk", json=body)
    answer.raise_for_status()
    taken = time.perf_counter() - began
    if len(set(answer.json()["runs"])) != count:
        raise RuntimeError(f"{count} runs were to be started, and {len(answer.json()['runs'])} were")
    return count / taken


async def measure(rig: Rig, repeats: int, *, with_worker: bool = False) -> dict[str, list[float]]:
    """Measure starts and bulk starts separately, because a worker would still be busy with the bulk."""
    figures: dict[str, list[float]] = {"starts": [], "bulks": []}
    for _ in range(repeats):
        async with rig.testbed() as stage, open_client(stage) as client, AsyncExitStack() as stack:
            if with_worker:
                await stack.enter_async_context(workers(stage.url, 20, held=False))
            await measure_paced_starts(client, rig.count(100))
            figures["starts"] += await measure_paced_starts(client, rig.count(1_000, least=10))
        async with rig.testbed() as stage, open_client(stage) as client:
            await measure_bulk_start(client, rig.count(BULK))
            await stage.connection.execute("checkpoint")
            figures["bulks"].append(await measure_bulk_start(client, rig.count(BULK)))
    return figures


async def _main(arguments: argparse.Namespace) -> None:
    async with open_server() as server:
        for name, value in (await describe(server)).items():
            print(f"{name}: {value}")
        figures = await measure(Rig(server, arguments.scale), arguments.repeats, with_worker=arguments.worker)
        await server.close()
    _print_results(figures)


def _print_results(figures: dict[str, list[float]]) -> None:
    starts, bulks = figures["starts"], figures["bulks"]
    print(
        f"start at {STARTS_A_SECOND}/s, {len(starts)} calls: p50 {median(starts):.1f} ms, "
        f"p99 {quantiles(starts, n=100, method='inclusive')[98]:.1f} ms, worst {max(starts):.1f} ms"
    )
    print(f"bulk start of {BULK:,} in one call: {median(bulks):,.0f}/s ({min(bulks):,.0f} to {max(bulks):,.0f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.api", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of every count, for a quick run")
    parser.add_argument("--worker", action="store_true", help="let a worker run what is started, on the same machine")
    uvloop.run(_main(parser.parse_args()))
