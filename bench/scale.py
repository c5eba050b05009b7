"""`python -m bench.scale`: what one PostgreSQL server carries, by the number of cores.

Client, workers and the database share the cores. The rounds alternate between one core, two, four and so on, up to all
of the machine, so that a disturbance affects each of them. Then all cores serve the inbox with more and more open
reviews, and live events to more and more watchers.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import uvloop

from bench import live, workloads
from bench.inbox import open_reviews
from bench.machine import describe, get_load
from bench.pages import open_visitor, times
from bench.server import open_server
from bench.testbed import Rig
from bench.throughput import IN_FLIGHT, STEPS, Samples, fan
from bench.workers import workers

REVIEWS = (500, 5_000, 50_000)
WATCHERS = (1_000, 10_000)
INBOX = {"inbox": "/reviews", "with a filter": "/reviews?q=parte+1&assignee=nobody"}


@contextmanager
def use_cores(cores: set[int]) -> Iterator[None]:
    """Let this process, and all that it starts meanwhile, use only these cores."""
    before = os.sched_getaffinity(0)
    _set_affinity(cores)
    try:
        yield
    finally:
        _set_affinity(before)


def _set_affinity(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():  # each has an affinity of its own, and passes it to what it starts
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)


async def measure_speed(rig: Rig) -> Samples:
    """Return the steps and events of a chain, the items of a fan-out and the single jobs of each second."""
    found: Samples = {}
    for name, pipeline, runs, steps in (
        ("steps of a chain", workloads.chain, 4_000, STEPS),
        ("single jobs", workloads.drain, 40_000, 1),
    ):
        count = rig.count(runs)
        async with rig.testbed() as stage, workers(stage.url, IN_FLIGHT) as (worker,):
            first = await stage.load(pipeline, count)
            written = "select count(*) from retoma.events"
            before = await stage.connection.fetchval(written)
            worker.go()
            work = await stage.work(first, count * steps)
            events = await stage.connection.fetchval(written) - before
        found[name] = [work.per_second]
        found[f"events of {name}"] = [events / work.seconds]
    found["items of a fan-out"] = (await fan(rig))["fan"]
    return found


async def compare_cores(rounds: int, scale: float) -> dict[int, Samples]:
    every = sorted(os.sched_getaffinity(0))
    counts = [count for count in (1, 2, 4, 8, 16, 32) if count < len(every)] + [len(every)]
    samples: dict[int, Samples] = {count: defaultdict(list) for count in counts}
    for _ in range(rounds):
        for count in counts:
            with use_cores(set(every[:count])):
                async with open_server(f"server-{count}-cores") as server:
                    for name, values in (await measure_speed(Rig(server, scale))).items():
                        samples[count][name] += values
                    await server.close()
    return samples


async def measure_inbox(rig: Rig, reviews: int, requests: int) -> dict[str, float]:
    """Return the 95th percentile of the time to first byte of each page, in milliseconds."""
    with TemporaryDirectory(prefix="retoma-bench-") as home:
        async with rig.testbed() as testbed:
            await open_reviews(testbed, Path(home), reviews)
            await testbed.connection.execute("vacuum analyze")
            async with open_visitor(testbed, "bench.inbox:app", home) as visitor:
                return {
                    name: quantiles(await times(visitor, path, requests), n=20, method="inclusive")[18]
                    for name, path in INBOX.items()
                }


async def _main(arguments: argparse.Namespace) -> None:
    live.raise_file_limit()
    async with open_server() as server:
        for name, value in (await describe(server)).items():
            print(f"{name}: {value}")
    samples = await compare_cores(arguments.rounds, arguments.scale)
    print("\n| each second | " + " | ".join(f"{count} core{'s'[: count - 1]}" for count in samples) + " |")
    print("| --- |" + " --- |" * len(samples))
    for name in samples[max(samples)]:
        print(f"| {name} | " + " | ".join(f"{median(found[name]):,.0f}" for found in samples.values()) + " |")
    async with open_server() as server:
        print("\n| open reviews | " + " | ".join(f"{name}, p95 in ms" for name in INBOX) + " |\n| --- | --- | --- |")
        for reviews in REVIEWS:
            rig = Rig(server, arguments.scale, timeout=1_800)
            found = await measure_inbox(rig, rig.count(reviews, least=60), arguments.requests)
            print(f"| {reviews:,} | " + " | ".join(f"{each:.0f}" for each in found.values()) + " |", flush=True)
        print("\n| live streams | kB each | delay, s | worst delay, s |\n| --- | --- | --- | --- |")
        for watchers in WATCHERS:
            each = await live.measure(Rig(server, arguments.scale * watchers / live.WATCHERS))
            print(
                f"| {watchers:,} | {each.kilobytes_each:.1f} | {median(each.delays):.2f} | {max(each.delays):.2f} |",
                flush=True,
            )
        await server.close()
    print(f"\nload when it ended: {get_load()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="each measures one core, two, and so on")
    parser.add_argument("--requests", type=int, default=60, help="for each page of the inbox")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of all counts, for a quick look")
    uvloop.run(_main(parser.parse_args()))
