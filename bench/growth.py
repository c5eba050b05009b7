"""Measure the speed with full tables, without vacuum, and without analyze.

`python -m bench.growth --runs N` says what N finished runs take on disk, fills a database with them, and compares
speed, pages and the removal of runs with those of an empty database.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from shutil import disk_usage
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import uvloop

from bench import workloads
from bench.machine import describe
from bench.server import BENCH_FOLDER, open_server
from bench.testbed import Rig, Testbed
from bench.throughput import IN_FLIGHT, STEPS, Samples, measure_fans
from bench.workers import workers
from retoma import Pipeline
from retoma.engine.retention import remove_due
from retoma.settings import RetentionTimes
from retoma.store.database import Database

TABLES = ("runs", "jobs", "events")
SLICES = 10
RUNS_PER_STATEMENT = 100_000

HISTORY_START = timedelta(days=30)  # before now; the runs are spread over all of it except the last day

# The ids have the order of time, as the engine's have, and are below those of any run that is started now. `$5` is the
# start of the history, and `$6` the seconds between two runs.
_ID = "(lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid"
_SERIES = """generate_series($3::int, $4::int) n,
       lateral (select $5::timestamptz + make_interval(secs => n * $6::float) as at) t"""

_FINISHED_RUNS = f"""
insert into retoma.runs (id, tenant, version, state, open_sinks, input, created_at, run_at, ended_at)
select {_ID}, $1, $2, 'completed', 0, '{{"n": 1, "payload": ""}}', at, at, at + interval '1 second'
  from {_SERIES}
"""
_FINISHED_JOBS = f"""
insert into retoma.jobs (run, rank, version, tenant, revision, worker, fence, attempt, state, step, queue,
                         created_at, started_at, ended_at, output)
select {_ID}, n, $2, $1, 1, 1, 1, 1, 'succeeded', s.step, s.queue, at, at, at, '1'
  from {_SERIES}, retoma.steps s
 where s.version = $2
"""
_FINISHED_EVENTS = f"""
insert into retoma.events (run, at, revision, attempt, worker, kind, step, item, data)
select {_ID}, at, 1, 1, 1, kind, case when kind = 'result' then step end, '',
       case when kind = 'end' then '{{"state": "completed"}}'::json end
  from {_SERIES},
       (select 'result' as kind, step from retoma.steps where version = $2
        union all values ('start', ''), ('end', '')) e
 where $1::int is not null
"""
_SCHEDULED_RUNS = f"""
insert into retoma.runs (id, tenant, version, state, open_sinks, input, created_at, run_at)
select {_ID}, $1, $2, 'pending', 1, '{{"n": 1, "payload": ""}}', now(), now() + interval '1 day' + n * interval '1 ms'
  from {_SERIES}
"""
_SCHEDULED_JOBS = f"""
insert into retoma.jobs (run, rank, version, tenant, revision, state, step, queue, created_at, ready_at)
select {_ID}, n, $2, $1, 1, 'ready', s.step, s.queue, now(), now() + interval '1 day' + n * interval '1 ms'
  from {_SERIES}, retoma.steps s
 where s.version = $2 and s.dependency_count = 0
"""
_SCHEDULED_EVENTS = f"""
insert into retoma.events (run, at, revision, kind)
select {_ID}, now(), 1, 'start'
  from {_SERIES}
 where $1::int is not null and $2::int is not null
"""
FINISHED = (_FINISHED_RUNS, _FINISHED_JOBS, _FINISHED_EVENTS)
SCHEDULED = (_SCHEDULED_RUNS, _SCHEDULED_JOBS, _SCHEDULED_EVENTS)
_CURVE = """
select slice, count(*) / nullif(extract(epoch from max(ended_at) - min(before)), 0) as per_second
  from (select ended_at, ntile($2) over (order by ended_at) as slice,
               lag(ended_at, 1, $3) over (order by ended_at) as before
          from retoma.jobs where run >= $1) done
 group by slice order by slice
"""


async def empty(rig: Rig) -> Samples:
    async with rig.testbed() as stage:
        return await measure_both(rig, stage, "empty")


async def finished(rig: Rig) -> Samples:
    async with rig.testbed() as stage:
        await insert_history(stage, "chain", rig.count(100_000), FINISHED)
        return await measure_both(rig, stage, "finished")


async def scheduled(rig: Rig) -> Samples:
    async with rig.testbed() as stage:
        await insert_history(stage, "drain", rig.count(1_000_000), SCHEDULED)
        return await measure_both(rig, stage, "scheduled")


async def long_transaction(rig: Rig) -> Samples:
    async with rig.testbed() as stage, open_snapshot(rig, stage):
        return await measure_both(rig, stage, "long_transaction")


async def never_analysed(rig: Rig) -> Samples:
    async with rig.testbed() as stage:
        for table in TABLES:
            await stage.connection.execute(f"alter table retoma.{table} set (autovacuum_enabled = off)")
        return await measure_both(rig, stage, "never_analysed")


async def fan_100k(rig: Rig) -> Samples:
    return {"fan_100k": await measure_fans(rig, rig.count(100_000, least=3), times=1)}


async def measure_both(rig: Rig, testbed: Testbed, name: str) -> Samples:
    """Measure the chain, then the drain, and the drain's speed tenth by tenth."""
    chained, _ = await measure(testbed, workloads.chain, rig.count(4_000), STEPS)
    drained, curve = await measure(testbed, workloads.drain, rig.count(100_000, least=SLICES), 1)
    return {f"chain@{name}": [chained], f"drain@{name}": [drained], f"curve@{name}": curve}


async def measure(testbed: Testbed, pipeline: Pipeline, runs: int, steps: int) -> tuple[float, list[float]]:
    async with workers(testbed.url, IN_FLIGHT) as (worker,):
        first = await testbed.load(pipeline, runs)
        worker.go()
        work = await testbed.work(first, runs * steps)
    began = await testbed.connection.fetchval("select min(started_at) from retoma.jobs where run >= $1", first)
    rows = await testbed.connection.fetch(_CURVE, first, SLICES, began)
    return work.per_second, [float(row["per_second"] or 0) for row in rows]


async def insert_history(testbed: Testbed, pipeline: str, count: int, statements: tuple[str, ...]) -> None:
    """Insert history as the engine would have left it: counted in the metrics, and vacuumed once."""
    await insert_rows(testbed, pipeline, count, statements)
    for _ in range(3):  # each continues where the previous one ended
        await testbed.connection.execute("select retoma.update_metric_counters($1)", 2 * count)
    await testbed.connection.execute("checkpoint")


async def insert_rows(testbed: Testbed, pipeline: str, count: int, statements: tuple[str, ...]) -> None:
    """Insert runs in slices, so the time and the log of each statement stay limited. Vacuum the tables."""
    version, tenant = await version_and_tenant(testbed, pipeline)
    start = datetime.now(UTC) - HISTORY_START
    interval = (HISTORY_START - timedelta(days=1)) / count
    for first in range(1, count + 1, RUNS_PER_STATEMENT):
        last = min(first + RUNS_PER_STATEMENT - 1, count)
        for statement in statements:
            await testbed.connection.execute(statement, tenant, version, first, last, start, interval.total_seconds())
    for table in TABLES:
        await testbed.connection.execute(f"vacuum analyze retoma.{table}")


async def version_and_tenant(testbed: Testbed, pipeline: str) -> tuple[int, int]:
    """Return the ids of version and tenant from a run that is started and cancelled."""
    run = (await testbed.client.start(pipeline)).id
    await testbed.client.runs.cancel(run)
    (row,) = await testbed.connection.fetch("select version, tenant from retoma.runs where id = $1", run)
    return row["version"], row["tenant"]


@asynccontextmanager
async def open_snapshot(rig: Rig, testbed: Testbed) -> AsyncIterator[None]:
    async with rig.server.connection(testbed.url) as other, other.transaction(isolation="repeatable_read"):
        await other.fetchval("select count(*) from retoma.jobs")
        yield


BYTES_PER_RUN = {"chain": 6_300, "drain": 1_300}  # with their indexes, measured with 100,000 runs
MAX_GB = 15.0  # enough for 5 million runs of `drain`
PAGES = {
    "overview": "/",
    "runs": "/runs",
    "failed runs": "/runs?state=failed",
    "a run": "/runs/{run}",  # the oldest
    "reviews": "/reviews",
    "charts": "/charts",
    "budgets": "/budgets",
    "audit log": "/audit",
    "retention": "/retention",
}


async def fill(testbed: Testbed, pipeline: str, runs: int) -> None:
    """Insert finished runs, without the time that it takes to count their events."""
    await insert_rows(testbed, pipeline, runs, FINISHED)
    await testbed.connection.execute("update retoma.metric_cursor set through = (select max(id) from retoma.events)")
    await testbed.connection.execute("checkpoint")


def check_disk(runs: int, pipeline: str, max_gb: float, free_gb: float) -> None:
    """Print how much disk space these runs take. Exit if that is more than `max_gb`, or most of the free space."""
    needed = math.ceil(runs * BYTES_PER_RUN[pipeline] * 2 / 1e8) / 10
    print(
        f"{runs:,} finished runs of {pipeline} take about {needed:.1f} GB on disk with the log; "
        f"{free_gb:.1f} GB are free"
    )
    if needed > free_gb * 0.8:
        raise SystemExit(f"not started: {needed / 0.8:.1f} GB must be free, or ask for fewer runs")
    if needed > max_gb:
        raise SystemExit(f"not started: pass --max-gb {needed:.1f}, or ask for fewer runs")


async def measure_pages(testbed: Testbed, requests: int) -> dict[str, float]:
    """Return the 95th percentile of the time to first byte of each page, in milliseconds."""
    from bench.pages import open_visitor, times  # which imports this module

    run = await testbed.connection.fetchval("select id from retoma.runs order by id limit 1")
    with TemporaryDirectory(prefix="retoma-bench-") as home:
        async with open_visitor(testbed, "bench.workloads:app", home) as client:
            return {
                name: quantiles(await times(client, path.format(run=run), requests), n=20, method="inclusive")[18]
                for name, path in PAGES.items()
            }


async def measure_removal(testbed: Testbed, runs: int) -> tuple[int, float]:
    """Remove about this many runs. Return how many were, and how many in a second without the rests."""
    rows = await testbed.connection.fetch("select ended_at from retoma.runs order by id limit 1 offset $1", runs)
    now = await testbed.connection.fetchval("select clock_timestamp()")
    async with Database(testbed.url, None) as database:
        began = time.perf_counter()
        removed = await remove_due(database, RetentionTimes(ended=now - rows[0]["ended_at"]), at_once=True)
        return removed, removed / (time.perf_counter() - began)


async def measure_disk(testbed: Testbed, runs: int) -> list[tuple[str, float, float]]:
    """Return the bytes of each table and of its indexes for each run."""
    sizes = await testbed.client.retention.list_table_sizes()
    return [(each.table, each.table_bytes / runs, each.index_bytes / runs) for each in sizes if each.table in TABLES]


async def _main(arguments: argparse.Namespace) -> None:
    check_disk(arguments.runs, arguments.pipeline, arguments.max_gb, disk_usage(BENCH_FOLDER.parent).free / 1e9)
    async with open_server() as server:
        for name, value in (await describe(server)).items():
            print(f"{name}: {value}")
        rig = Rig(server, arguments.scale, timeout=arguments.timeout)
        async with rig.testbed() as full:
            await fill(full, arguments.pipeline, arguments.runs)
            name = f"{arguments.runs:,} finished runs"
            print("\n| | jobs/s of a chain | jobs/s of single jobs | pages, p95 in ms |\n| --- | --- | --- | --- |")
            ratios = []
            for _ in range(arguments.rounds):  # in turn, so that a disturbance of the machine affects both
                async with rig.testbed() as stage:
                    before = await _measure_line(rig, stage, "empty", arguments.requests)
                after = await _measure_line(rig, full, name, arguments.requests)
                ratios.append([one / other for one, other in zip(after, before, strict=True)])
            print("| median of the ratios | {:.2f} | {:.2f} | |".format(*map(median, zip(*ratios, strict=True))))
            for table, data, indexes in await measure_disk(full, arguments.runs):
                print(f"{table}: {data:.0f} bytes and {indexes:.0f} bytes of indexes for each run")
            removed, per_second = await measure_removal(full, arguments.runs // 10)
            print(f"removal: {removed:,} runs, {per_second:.0f} runs/s")
        await server.close()


async def _measure_line(rig: Rig, testbed: Testbed, name: str, requests: int) -> tuple[float, float]:
    chained, _ = await measure(testbed, workloads.chain, rig.count(4_000), STEPS)
    drained, _ = await measure(testbed, workloads.drain, rig.count(100_000, least=SLICES), 1)
    pages = ", ".join(f"{page} {took:.0f}" for page, took in (await measure_pages(testbed, requests)).items())
    print(f"| {name} | {chained:.0f} | {drained:.0f} | {pages} |", flush=True)
    return chained, drained


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="finished runs in the database")
    parser.add_argument("--pipeline", choices=BYTES_PER_RUN, default="chain", help="ten jobs for each run, or one")
    parser.add_argument("--max-gb", type=float, default=MAX_GB, help="refuse to take more disk space than this")
    parser.add_argument("--rounds", type=int, default=3, help="each measures an empty database and the full one")
    parser.add_argument("--requests", type=int, default=20, help="for each page")
    parser.add_argument("--scale", type=float, default=0.2, help="a part of the measured runs, for a quick look")
    parser.add_argument("--timeout", type=float, default=7_200.0, help="seconds for all that one database is used for")
    uvloop.run(_main(parser.parse_args()))
