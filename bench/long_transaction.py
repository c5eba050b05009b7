"""`python -m bench.long_transaction`: measure throughput while a transaction stays open.

Nothing that was claimed or finished since then can be vacuumed. The same batch runs in turn in a database with such a
transaction and in one without; their ratio is the cost, independent of other load on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncGenerator
from statistics import median
from typing import NamedTuple

import structlog
import uvloop

from bench import workloads
from bench.growth import open_snapshot
from bench.server import open_server
from bench.testbed import Rig, Testbed
from bench.throughput import IN_FLIGHT
from bench.workers import workers

CHAINS, FANS, ITEMS = 1_000, 20, 100
SECONDS_BETWEEN_BATCHES = 6.0
SECTIONS = 6
_DEAD_ROWS = "select n_dead_tup from pg_stat_user_tables where relid = 'retoma.jobs'::regclass"


class Sample(NamedTuple):
    seconds_without: float
    seconds_with: float
    dead_rows: int

    @property
    def ratio(self) -> float:
        return self.seconds_with / self.seconds_without


async def measure(rig: Rig, seconds: float, pause: float = SECONDS_BETWEEN_BATCHES) -> AsyncGenerator[Sample, None]:
    """Yield one sample for each pair of batches, for as long as the transaction stays open."""
    async with (
        rig.testbed() as without,
        rig.testbed() as beside,
        workers(without.url, IN_FLIGHT) as (first,),
        workers(beside.url, IN_FLIGHT) as (second,),
    ):
        first.go()
        second.go()
        for testbed in (without, beside):
            await run_batch(rig, testbed)
        async with open_snapshot(rig, beside):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                times = await run_batch(rig, without), await run_batch(rig, beside)
                yield Sample(*times, await beside.connection.fetchval(_DEAD_ROWS))
                await asyncio.sleep(pause)


async def run_batch(rig: Rig, testbed: Testbed) -> float:
    began = time.monotonic()
    first = await testbed.start(workloads.chain, rig.count(CHAINS))
    await testbed.start(workloads.fan, rig.count(FANS), {"n": rig.count(ITEMS)})
    await testbed.wait_for_end(first, 0.01)
    return time.monotonic() - began


async def _main(minutes: float) -> None:
    async with open_server() as server:
        samples = [each async for each in measure(Rig(server, timeout=minutes * 60 + 300), minutes * 60)]
        await server.close()
    size = max(1, len(samples) // SECTIONS)
    print("| batches | without | with | ratio | dead rows of jobs |\n|---|---|---|---|---|")
    for start in range(0, len(samples), size):
        part = samples[start : start + size]
        print(
            f"| {start + 1} to {start + len(part)} | {median(each.seconds_without for each in part):.2f} s "
            f"| {median(each.seconds_with for each in part):.2f} s | {median(each.ratio for each in part):.2f} "
            f"| {part[-1].dead_rows:,} |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.long_transaction", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    uvloop.run(_main(parser.parse_args().minutes))
