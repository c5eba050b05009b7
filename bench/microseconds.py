"""Where the microseconds of a job go: Python, PostgreSQL's processes, and the statements inside the worker's call."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg

from bench import workloads
from bench.stage import Rig, Stage
from bench.starts import CALLERS
from bench.throughput import IN_FLIGHT, KILOBYTE, STEPS, THREADS
from bench.workers import workers
from retoma import Pipeline

MICRO = 1_000_000
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
    given: dict[str, str] | None = None
    concurrency: int = IN_FLIGHT

    def scaled(self, rig: Rig) -> Load:
        return replace(self, runs=rig.count(self.runs))

    @property
    def jobs(self) -> int:
        return self.runs * self.steps


LOADS = {
    "chain": Load(workloads.chain, 4_000, STEPS),
    "chain with 1 KB": Load(workloads.payload_chain, 2_000, STEPS, KILOBYTE),
    "drain": Load(workloads.drain, 40_000),
    "drain in threads": Load(workloads.drain_threads, 20_000, concurrency=THREADS),
}


async def profile(rig: Rig) -> dict[str, Any]:
    """Twice each: once for the times, and once more for the statements, since watching them costs time."""
    figures: dict[str, dict[str, float]] = {}
    statements: dict[str, Any] = {}
    for name, load in LOADS.items():
        async with rig.stage() as stage:
            figures[name] = await _times(stage, load.scaled(rig))
        async with rig.stage() as stage:
            statements[name] = await _statements(stage, load.scaled(rig))
    async with rig.stage() as stage:
        figures["start, 100 callers"] = await _started(stage, rig.count(200))
    return {"figures": figures, "statements": statements}


async def _times(stage: Stage, load: Load) -> dict[str, float]:
    async with workers(stage.url, load.concurrency) as (worker,):
        first = await stage.load(load.pipeline, load.runs, load.given)
        before, wal = await _ticks(stage), await stage.connection.fetchval(_WAL)
        worker.go()
        work = await stage.work(first, load.jobs)
        used, after = await worker.usage(), await _ticks(stage)
        written = await stage.connection.fetchval(_WAL) - wal
    return {
        "from first claim to last commit": MICRO * work.seconds / load.jobs,
        "Python of the worker": MICRO * (used.cpu_seconds - worker.at_first.cpu_seconds) / load.jobs,
        "its PostgreSQL processes": MICRO * _spent(before, after) / load.jobs,
        "WAL, bytes": float(written) / load.jobs,
        "updates of jobs that stay in their page, %": float(await stage.connection.fetchval(_HOT) or 0),
    }


async def _statements(stage: Stage, load: Load) -> Any:
    """What each statement inside the server's functions took, or why that cannot be known."""
    name = await stage.connection.fetchval("select current_database()")
    try:
        await stage.connection.execute("create extension if not exists pg_stat_statements")
        await stage.connection.execute(f"alter database \"{name}\" set pg_stat_statements.track = 'all'")
        await stage.connection.fetch("select from pg_stat_statements limit 1")
    except asyncpg.PostgresError as error:
        return f"pg_stat_statements is not available ({error})"
    async with workers(stage.url, load.concurrency) as (worker,):
        first = await stage.load(load.pipeline, load.runs, load.given)
        await stage.connection.execute("select pg_stat_statements_reset()")
        worker.go()
        await stage.work(first, load.jobs)
    return [_statement(row, load.jobs) for row in await stage.connection.fetch(_STATEMENTS)]


def _statement(row: asyncpg.Record, jobs: int) -> dict[str, Any]:
    text = row["query"][:90].replace("|", " ").strip()
    return {"statement": text, "microseconds": 1_000 * row["milliseconds"] / jobs, "calls": row["calls"]}


async def _started(stage: Stage, each: int) -> dict[str, float]:
    """The client is this process, so that its time is what it used between two looks."""

    async def call(times: int) -> None:
        for _ in range(times):
            await stage.client.start(workloads.drain, {})

    await call(5)
    before, began, used = await _ticks(stage), time.perf_counter(), time.process_time()
    await asyncio.gather(*(call(each) for _ in range(CALLERS)))
    seconds, python, starts = time.perf_counter() - began, time.process_time() - used, each * CALLERS
    return {
        "from first claim to last commit": MICRO * seconds / starts,
        "Python of the worker": MICRO * python / starts,
        "its PostgreSQL processes": MICRO * _spent(before, await _ticks(stage)) / starts,
    }


async def _ticks(stage: Stage) -> dict[int, int]:
    """Processor time of the database's processes, by process."""
    pids = [row["pid"] for row in await stage.connection.fetch(_BACKENDS)]
    return {pid: _ticks_of(pid) for pid in pids}


def _ticks_of(pid: int) -> int:
    """Zero where there is no /proc."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0
    fields = stat.read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _spent(before: dict[int, int], after: dict[int, int]) -> float:
    return sum(ticks - before.get(pid, 0) for pid, ticks in after.items()) / os.sysconf("SC_CLK_TCK")
