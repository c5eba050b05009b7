"""The lines of the tables with their targets, and the functions that measure them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench import growth, idle_worker, starts, throughput
from bench.testbed import Rig
from bench.throughput import Samples

CONDITIONS = {
    "empty": "empty tables",
    "finished": "1,000,000 finished jobs",
    "scheduled": "1,000,000 scheduled jobs",
    "long_transaction": "a transaction that stays open",
    "never_analysed": "never vacuumed, never analysed",
}
LEAST_OF_EMPTY = 0.8


@dataclass(frozen=True)
class Line:
    what: str
    unit: str = "/s"
    target: float | None = None
    beyond: float | None = None
    less_is_better: bool = False

    def reaches(self, figure: float, aim: float | None) -> bool:
        return aim is not None and (figure <= aim if self.less_is_better else figure >= aim)


@dataclass(frozen=True)
class Measure:
    """`once`: too slow to repeat."""

    take: Callable[[Rig], Awaitable[Samples]]
    once: bool = False


LINES = {
    "chain": Line("10 sequential durable steps, 1,000 in flight", " steps/s", 30_000, 50_000),
    "payload": Line("the same with 1 KB of JSON per step", " steps/s", 20_000, 35_000),
    "chain_1": Line("the same chain, 1 run in flight", " steps/s"),
    "chain_10": Line("10 runs in flight", " steps/s"),
    "chain_100": Line("100 runs in flight", " steps/s"),
    "fan": Line("fan-out of 1,000 and join", " items/s", 20_000, 30_000),
    "fan_10k": Line("fan-out of 10,000 and join", " items/s"),
    "fan_100k": Line("fan-out of 100,000 and join", " items/s"),
    "drain": Line("drain no-op jobs, `async def`", " jobs/s", 30_000, 50_000),
    "drain_threads": Line("drain no-op jobs, `def` in threads", " jobs/s", 15_000, 25_000),
    "start_one": Line("start, one caller", "/s", 2_500, 3_000),
    "start_hundred": Line("start, 100 callers", "/s", 50_000, 70_000),
    "start_bulk": Line("start, in bulk", "/s", 80_000, 120_000),
    "latency_p50": Line("start to first step at 20/s, median", " ms", 2.5, 2, less_is_better=True),
    "latency_p99": Line("start to first step at 20/s, 99th percentile", " ms", 5, 3, less_is_better=True),
    "two_chain": Line("chain: two processes against one", " x", 1.0),
    "two_chain_narrow": Line("chain: two against one with one connection", " x", 1.4),
    "two_drain": Line("drain: two processes against one", " x", 1.0),
    "two_drain_narrow": Line("drain: two against one with one connection", " x", 1.4),
    "idle_cpu": Line("idle worker, of a core", " %", 1, less_is_better=True),
    "idle_statements": Line("idle worker, statements", "/s", 5, less_is_better=True),
    "idle_megabytes": Line("idle worker, resident memory", " MB", 120, less_is_better=True),
}

MEASURES = {
    "chain": Measure(throughput.chain),
    "payload": Measure(throughput.payload),
    "in_flight": Measure(throughput.in_flight),
    "fan": Measure(throughput.fan),
    "fan_10k": Measure(throughput.fan_10k),
    "fan_100k": Measure(growth.fan_100k, once=True),
    "drain": Measure(throughput.drain),
    "drain_threads": Measure(throughput.drain_threads),
    "start_one": Measure(starts.start_one),
    "start_hundred": Measure(starts.start_hundred),
    "start_bulk": Measure(starts.start_bulk),
    "latency": Measure(starts.latency),
    "two": Measure(throughput.two),
    "idle": Measure(idle_worker.idle),
    **{name: Measure(getattr(growth, name)) for name in CONDITIONS},
}

# The measures for the other engines, as far as each supports them. Of `in_flight` they report `chain_1`.
COMPARED = (
    *("chain", "payload", "in_flight", "fan", "drain", "drain_threads"),
    *("start_one", "start_hundred", "start_bulk", "latency"),
)
