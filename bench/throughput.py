"""Measure steps, items and jobs per second of one worker process, and of two."""

from __future__ import annotations

import time
from statistics import median

from bench import workloads
from bench.payload import PAYLOAD
from bench.testbed import Rig, Testbed, Work
from bench.workers import LINKS, workers
from retoma import Pipeline

Samples = dict[str, list[float]]

STEPS = 10
IN_FLIGHT = 1_000
THREADS = 64
KILOBYTE = {"payload": PAYLOAD}


async def chain(rig: Rig) -> Samples:
    work = await measure_preloaded(rig, workloads.chain, rig.count(4_000), STEPS)
    return {"chain": [work.per_second]}


async def payload(rig: Rig) -> Samples:
    work = await measure_preloaded(rig, workloads.payload_chain, rig.count(2_000), STEPS, inputs=KILOBYTE)
    return {"payload": [work.per_second]}


async def in_flight(rig: Rig) -> Samples:
    """Run so many runs at a time: each wave starts when the previous one has ended."""
    async with rig.testbed() as stage, workers(stage.url, IN_FLIGHT, held=False):
        await run_wave(stage, 10)
        return {
            f"chain_{runs}": [await run_waves(stage, runs, rig.count(full, least=2))]
            for runs, full in {1: 100, 10: 50, 100: 20}.items()
        }


async def run_waves(testbed: Testbed, runs: int, count: int) -> float:
    seconds = [await run_wave(testbed, runs) for _ in range(count)]
    return runs * STEPS * count / sum(seconds)


async def run_wave(testbed: Testbed, runs: int) -> float:
    first = await testbed.start(workloads.chain, runs)
    # From the first claim to the last result there are as many calls as steps, so nothing is left out.
    return (await testbed.work(first, runs * STEPS, every=0.002)).seconds_to_last_call


async def fan(rig: Rig) -> Samples:
    return {"fan": await measure_fans(rig, rig.count(1_000, least=3), times=rig.count(7, least=2))}


async def fan_10k(rig: Rig) -> Samples:
    return {"fan_10k": await measure_fans(rig, rig.count(10_000, least=3), times=1)}


async def measure_fans(rig: Rig, items: int, times: int) -> list[float]:
    """Return items per second from the start call to the end of the join, on a warm worker, for each fan-out."""
    async with rig.testbed() as stage, workers(stage.url, IN_FLIGHT, held=False):
        await run_fan(stage, min(items, 100))
        return [median([items / await run_fan(stage, items) for _ in range(times)])]


async def run_fan(testbed: Testbed, items: int) -> float:
    began = time.perf_counter()
    first = await testbed.start(workloads.fan, 1, {"n": items})
    await testbed.wait_for_end(first, every=0.002)
    seconds = time.perf_counter() - began
    await testbed.work(first, items + 2)
    return seconds


async def drain(rig: Rig) -> Samples:
    return {"drain": [(await measure_preloaded(rig, workloads.drain, rig.count(40_000))).per_second]}


async def drain_threads(rig: Rig) -> Samples:
    work = await measure_preloaded(rig, workloads.drain_threads, rig.count(20_000), concurrency=THREADS)
    return {"drain_threads": [work.per_second]}


async def two(rig: Rig) -> Samples:
    """Compare two processes with one, which has two connections or one."""
    samples: Samples = {}
    for name, pipeline, runs, steps in (
        ("chain", workloads.chain, 4_000, STEPS),
        ("drain", workloads.drain, 40_000, 1),
    ):
        runs = rig.count(runs)
        both = await measure_preloaded(rig, pipeline, runs, steps, processes=2)
        one = await measure_preloaded(rig, pipeline, runs, steps)
        narrow = await measure_preloaded(rig, pipeline, runs, steps, links=1)
        samples[f"two_{name}"] = [both.per_second / one.per_second]
        samples[f"two_{name}_narrow"] = [both.per_second / narrow.per_second]
    return samples


async def measure_preloaded(
    rig: Rig,
    pipeline: Pipeline,
    runs: int,
    steps: int = 1,
    *,
    inputs: dict[str, str] | None = None,
    concurrency: int = IN_FLIGHT,
    processes: int = 1,
    links: int = LINKS,
) -> Work:
    """Measure with all runs started before the workers."""
    async with rig.testbed() as stage, workers(stage.url, concurrency, processes=processes, links=links) as team:
        first = await stage.load(pipeline, runs, inputs)
        for worker in team:
            worker.go()
        return await stage.work(first, runs * steps)
