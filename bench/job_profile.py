"""Profile a job: Python, PostgreSQL's processes, and the statements inside the worker's call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import asyncpg

from bench import workloads
from bench.process import cpu_seconds
from bench.starts import CALLERS, start_paced, start_sequentially
from bench.testbed import Rig, Testbed
from bench.throughput import IN_FLIGHT, KILOBYTE, STEPS, THREADS
from bench.workers import workers
from retoma import Pipeline

MICRO = 1_000_000
ITEMS = 1_000
Starts = Callable[[Testbed, int], Awaitable[object]]
_BACKENDS = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
_WAL = "select pg_current_wal_lsn() - '0/0'"
_HOT = "select 100.0 * n_tup_hot_upd / nullif(n_tup_upd, 0) from pg_stat_user_tables where relname = 'jobs'"
_STATEMENTS = """
select regexp_replace(query, '\\s+', ' ', 'g') as query, calls, total_exec_time as milliseconds
  from pg_stat_statements where dbid = (select oid from pg_database where datname = current_database())
   and not toplevel and query not like 'select pg_stat%' order by total_exec_time desc limit 8
"""


@dataclass(frozen=True)
class Load:
    pipeline: Pipeline
    runs: int
    steps: int = 1
    inputs: dict[str, Any] | None = None
    concurrency: int = IN_FLIGHT

    def scaled(self, rig: Rig) -> Load:
        return replace(self, runs=rig.count(self.runs))

    @property
    def jobs(self) -> int:
        return self.runs * self.steps


LOADS = {
    "chain": Load(workloads.chain, 4_000, STEPS),
    "chain with 1 KB": Load(workloads.payload_chain, 2_000, STEPS, KILOBYTE),
    "fan-out of 1,000": Load(workloads.fan, 20, ITEMS + 2, {"n": ITEMS}),
    "drain": Load(workloads.drain, 40_000),
    "drain in threads": Load(workloads.drain_threads, 20_000, concurrency=THREADS),
}


async def profile(rig: Rig) -> dict[str, Any]:
    """Run each twice: once for the times, and once for the statements, because tracing them takes time."""
    figures: dict[str, dict[str, float]] = {}
    statements: dict[str, Any] = {}
    for name, load in LOADS.items():
        async with rig.testbed() as stage:
            figures[name] = await _times(stage, load.scaled(rig))
        async with rig.testbed() as stage:
            statements[name] = await _statements(stage, load.scaled(rig))
    for name, (start, starts) in STARTS.items():
        async with rig.testbed() as stage:
            figures[name] = await _measure_starts(stage, start, rig.count(starts, least=CALLERS))
    async with rig.testbed() as stage:
        figures["start to first step"] = await _first_steps(stage, rig.count(200, least=5))
    return {"figures": figures, "statements": statements}


async def _times(testbed: Testbed, load: Load) -> dict[str, float]:
    async with workers(testbed.url, load.concurrency) as (worker,):
        first = await testbed.load(load.pipeline, load.runs, load.inputs)
        before, wal = await _read_cpu_times(testbed), await testbed.connection.fetchval(_WAL)
        worker.go()
        work = await testbed.work(first, load.jobs)
        used, after = await worker.usage(), await _read_cpu_times(testbed)
        written = await testbed.connection.fetchval(_WAL) - wal
    return {
        "from first claim to last commit": MICRO * work.seconds / load.jobs,
        "Python of the worker": MICRO * (used.cpu_seconds - worker.at_first.cpu_seconds) / load.jobs,
        "its PostgreSQL processes": MICRO * _cpu_difference(before, after) / load.jobs,
        "WAL, bytes": float(written) / load.jobs,
        "updates of jobs that stay in their page, %": float(await testbed.connection.fetchval(_HOT) or 0),
    }


async def _statements(testbed: Testbed, load: Load) -> Any:
    """Return the time of each statement inside the server's functions, or why it is not available."""
    name = await testbed.connection.fetchval("select current_database()")
    try:
        await testbed.connection.execute("create extension if not exists pg_stat_statements")
        await testbed.connection.execute(f"alter database \"{name}\" set pg_stat_statements.track = 'all'")
        await testbed.connection.fetch("select from pg_stat_statements limit 1")
    except asyncpg.PostgresError as error:
        return f"pg_stat_statements is not available ({error})"
    async with workers(testbed.url, load.concurrency) as (worker,):
        first = await testbed.load(load.pipeline, load.runs, load.inputs)
        await testbed.connection.execute("select pg_stat_statements_reset()")
        worker.go()
        await testbed.work(first, load.jobs)
    return [_statement(row, load.jobs) for row in await testbed.connection.fetch(_STATEMENTS)]


def _statement(row: asyncpg.Record, jobs: int) -> dict[str, Any]:
    text = row["query"][:90].replace("|", " ").strip()
    return {"statement": text, "microseconds": 1_000 * row["milliseconds"] / jobs, "calls": row["calls"]}


async def _measure_starts(testbed: Testbed, start: Starts, starts: int) -> dict[str, float]:
    """The client is this process, so its time is its own CPU time."""
    await start_sequentially(testbed, 5)
    before, began, used = await _read_cpu_times(testbed), time.perf_counter(), time.process_time()
    await start(testbed, starts)
    seconds, python = time.perf_counter() - began, time.process_time() - used
    return {
        "from first claim to last commit": MICRO * seconds / starts,
        "Python of the worker": MICRO * python / starts,
        "its PostgreSQL processes": MICRO * _cpu_difference(before, await _read_cpu_times(testbed)) / starts,
    }


async def _by_hundred(testbed: Testbed, starts: int) -> None:
    await asyncio.gather(*(start_sequentially(testbed, starts // CALLERS) for _ in range(CALLERS)))


async def _in_bulk(testbed: Testbed, starts: int) -> None:
    await testbed.client.start_many(workloads.drain, [{}] * starts)


STARTS: dict[str, tuple[Starts, int]] = {
    "start, one caller": (start_sequentially, 2_000),
    "start, 100 callers": (_by_hundred, 200 * CALLERS),
    "start, in bulk": (_in_bulk, 50_000),
}


async def _first_steps(testbed: Testbed, starts: int) -> dict[str, float]:
    """Start 20 a second, and include the worker's CPU time in between."""
    async with workers(testbed.url, 20, held=False) as (worker,):
        await start_paced(testbed, 5)
        before, idle = await _read_cpu_times(testbed), await worker.usage()
        waits = await start_paced(testbed, starts)
        used, after = await worker.usage(), await _read_cpu_times(testbed)
    return {
        "from the start to the first step": 1_000 * median(waits),
        "Python of the worker": MICRO * (used.cpu_seconds - idle.cpu_seconds) / starts,
        "its PostgreSQL processes": MICRO * _cpu_difference(before, after) / starts,
    }


async def _read_cpu_times(testbed: Testbed) -> dict[int, float]:
    """Return the CPU time of the database's processes."""
    return {row["pid"]: cpu_seconds(row["pid"]) for row in await testbed.connection.fetch(_BACKENDS)}


def _cpu_difference(before: dict[int, float], after: dict[int, float]) -> float:
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
