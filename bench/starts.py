"""Measure starts per second, each acknowledged after its commit, and the time from a start to its first step."""

from __future__ import annotations

import asyncio
import time
from statistics import median, quantiles

from bench.testbed import Rig, Testbed
from bench.throughput import Samples
from bench.workers import workers
from bench.workloads import drain, stamp

CALLERS = 100
STARTS_A_SECOND = 20


async def start_one(rig: Rig) -> Samples:
    return {"start_one": [await by_callers(rig, 1, rig.count(2_000))]}


async def start_hundred(rig: Rig) -> Samples:
    return {"start_hundred": [await by_callers(rig, CALLERS, rig.count(200, least=2))]}


async def by_callers(rig: Rig, callers: int, each: int) -> float:
    async with rig.testbed() as stage:
        await start_sequentially(stage, 5)
        await stage.connection.execute("checkpoint")
        began = time.perf_counter()
        await asyncio.gather(*(start_sequentially(stage, each) for _ in range(callers)))
        return callers * each / (time.perf_counter() - began)


async def start_sequentially(testbed: Testbed, times: int) -> None:
    for _ in range(times):
        await testbed.client.start(drain, {})


async def start_bulk(rig: Rig) -> Samples:
    runs = rig.count(50_000)
    async with rig.testbed() as stage:
        await start_sequentially(stage, 5)
        await stage.connection.execute("checkpoint")
        began = time.perf_counter()
        await stage.client.start_many(drain, [{}] * runs)
        return {"start_bulk": [runs / (time.perf_counter() - began)]}


async def latency(rig: Rig) -> Samples:
    """Return the milliseconds from before the call of `start` until the step's function begins in another process."""
    async with rig.testbed() as stage, workers(stage.url, 20, held=False):
        await start_paced(stage, 5)
        waits = await start_paced(stage, rig.count(200, least=5))
        return {"latency_p50": [median(waits)], "latency_p99": [quantiles(waits, n=100, method="inclusive")[98]]}


async def start_paced(testbed: Testbed, count: int) -> list[float]:
    began = time.monotonic()
    runs = []
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / STARTS_A_SECOND - time.monotonic()))
        runs.append((await testbed.client.start(stamp, {"sent_at": time.monotonic()})).id)
    await testbed.work(min(runs), count)
    rows = await testbed.connection.fetch(
        "select output::text::float as seconds from retoma.jobs where run = any ($1)", runs
    )
    return [row["seconds"] * 1_000 for row in rows]
