"""Measure the speed with full tables, without vacuum, and without analyze."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench import workloads
from bench.testbed import Rig, Testbed
from bench.throughput import IN_FLIGHT, STEPS, Samples, measure_fans
from bench.workers import workers
from retoma import Pipeline

TABLES = ("runs", "jobs", "events")
SLICES = 10

# Ids below those of any run that is started now.
_ID = "('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"

_FINISHED_RUNS = f"""
insert into retoma.runs (id, tenant, version, state, open_sinks, input, created_at, run_at, ended_at)
select {_ID}, $1, $2, 'completed', 0, '{{"n": 1, "payload": ""}}', at, at, at + interval '1 second'
  from generate_series(1, $3::int) n, lateral (select now() - interval '30 days' + n * interval '1 second' as at) t
"""
_FINISHED_JOBS = f"""
insert into retoma.jobs (run, rank, version, tenant, revision, worker, fence, attempt, state, step, queue,
                         created_at, started_at, ended_at, output)
select {_ID}, n, $2, $1, 1, 1, 1, 1, 'succeeded', s.step, s.queue, at, at, at, '1'
  from generate_series(1, $3::int) n, retoma.steps s,
       lateral (select now() - interval '30 days' + n * interval '1 second' as at) t
 where s.version = $2
"""
_FINISHED_EVENTS = f"""
insert into retoma.events (run, at, revision, attempt, worker, kind, step, item, data)
select {_ID}, at, 1, 1, 1, kind, case when kind = 'result' then step end, '',
       case when kind = 'end' then '{{"state": "completed"}}'::json end
  from generate_series(1, $3::int) n,
       (select 'result' as kind, step from retoma.steps where version = $2
        union all values ('start', ''), ('end', '')) e,
       lateral (select now() - interval '30 days' + n * interval '1 second' as at) t
 where $1::int is not null
"""
_SCHEDULED_RUNS = f"""
insert into retoma.runs (id, tenant, version, state, open_sinks, input, created_at, run_at)
select {_ID}, $1, $2, 'pending', 1, '{{"n": 1, "payload": ""}}', now(), now() + interval '1 day' + n * interval '1 ms'
  from generate_series(1, $3::int) n
"""
_SCHEDULED_JOBS = f"""
insert into retoma.jobs (run, rank, version, tenant, revision, state, step, queue, created_at, ready_at)
select {_ID}, n, $2, $1, 1, 'ready', s.step, s.queue, now(), now() + interval '1 day' + n * interval '1 ms'
  from generate_series(1, $3::int) n, retoma.steps s
 where s.version = $2 and s.dependency_count = 0
"""
_SCHEDULED_EVENTS = f"""
insert into retoma.events (run, at, revision, kind)
select {_ID}, now(), 1, 'start' from generate_series(1, $3::int) n where $1::int is not null and $2::int is not null
"""
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
        statements = (_FINISHED_RUNS, _FINISHED_JOBS, _FINISHED_EVENTS)
        await insert_history(stage, "chain", rig.count(100_000), statements)
        return await measure_both(rig, stage, "finished")


async def scheduled(rig: Rig) -> Samples:
    async with rig.testbed() as stage:
        statements = (_SCHEDULED_RUNS, _SCHEDULED_JOBS, _SCHEDULED_EVENTS)
        await insert_history(stage, "drain", rig.count(1_000_000), statements)
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
    (version, tenant) = await version_and_tenant(testbed, pipeline)
    for statement in statements:
        await testbed.connection.execute(statement, tenant, version, count)
    for table in TABLES:
        await testbed.connection.execute(f"vacuum analyze retoma.{table}")
    for _ in range(3):  # each continues where the previous one ended
        await testbed.connection.execute("select retoma.update_metric_counters($1)", 2 * count)
    await testbed.connection.execute("checkpoint")


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
