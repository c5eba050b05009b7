"""Where the microseconds of a job go: Python, PostgreSQL's processes, and the statements inside the worker's call."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg

from bench import workloads
from bench.stage import Rig, Stage
from bench.starts import CALLERS
from bench.throughput import IN_FLIGHT, KILOBYTE, STEPS
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
WORKS: dict[str, tuple[Pipeline, int, int, dict[str, Any]]] = {
    "chain": (workloads.chain, 4_000, STEPS, {}),
    "chain with 1 KB": (workloads.payload_chain, 2_000, STEPS, KILOBYTE),
    "drain": (workloads.drain, 40_000, 1, {}),
    "drain in threads": (workloads.drain_threads, 20_000, 1, {}),
}


async def profile(rig: Rig) -> dict[str, Any]:
    """Twice each: once for the times, and once more for the statements, since watching them costs time."""
    figures: dict[str, dict[str, float]] = {}
    statements: dict[str, Any] = {}
    for name, (pipeline, full, steps, given) in WORKS.items():
        runs = rig.count(full)
        async with rig.stage() as stage:
            figures[name] = await _worked(stage, pipeline, runs, steps, given)
        async with rig.stage() as stage:
            statements[name] = await _watched(stage, runs * steps, _work(pipeline, runs, steps, given))
    async with rig.stage() as stage:
        figures["start, 100 callers"] = await _started(stage, rig.count(200))
    return {"figures": figures, "statements": statements}


async def _worked(stage: Stage, pipeline: Pipeline, runs: int, steps: int, given: dict[str, Any]) -> dict[str, float]:
    jobs = runs * steps
    async with workers(stage.url, IN_FLIGHT) as (worker,):
        first = await stage.load(pipeline, runs, given)
        before, wal = await _ticks(stage), await stage.connection.fetchval(_WAL)
        worker.go()
        work = await stage.work(first, jobs)
        used, after = await worker.usage(), await _ticks(stage)
        written = await stage.connection.fetchval(_WAL) - wal
    return {
        "from first claim to last commit": MICRO * work.seconds / jobs,
        "Python of the worker": MICRO * (used.cpu_seconds - worker.at_first.cpu_seconds) / jobs,
        "its PostgreSQL processes": MICRO * _spent(before, after) / jobs,
        "WAL, bytes": float(written) / jobs,
        "updates of jobs that stay in their page, %": float(await stage.connection.fetchval(_HOT) or 0),
    }


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


def _work(pipeline: Pipeline, runs: int, steps: int, given: dict[str, Any]) -> Callable[[Stage], Awaitable[None]]:
    async def work(stage: Stage) -> None:
        async with workers(stage.url, IN_FLIGHT) as (worker,):
            first = await stage.load(pipeline, runs, given)
            await stage.connection.execute("select pg_stat_statements_reset()")
            worker.go()
            await stage.work(first, runs * steps)

    return work


async def _watched(stage: Stage, jobs: int, work: Callable[[Stage], Awaitable[None]]) -> Any:
    """What each statement inside the server's functions took, or why that cannot be known."""
    name = await stage.connection.fetchval("select current_database()")
    try:
        await stage.connection.execute("create extension if not exists pg_stat_statements")
        await stage.connection.execute(f"alter database \"{name}\" set pg_stat_statements.track = 'all'")
        await stage.connection.execute("select pg_stat_statements_reset()")
    except asyncpg.PostgresError as error:
        return f"pg_stat_statements is not available ({error})"
    await work(stage)
    rows = await stage.connection.fetch(_STATEMENTS)
    return [
        {
            "statement": row["query"][:90].replace("|", " "),
            "microseconds": 1_000 * row["milliseconds"] / jobs,
            "calls": row["calls"],
        }
        for row in rows
    ]


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
