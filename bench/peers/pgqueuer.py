"""PgQueuer: a job queue on PostgreSQL. It has no durable steps and keeps no results."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from functools import partial

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers.common import (
    CALLERS,
    Order,
    main,
    note_delay,
    pace_async,
    print_figure,
    print_latency,
    ready,
    until_async,
    worker,
)

CONNECTIONS = 10
_ELAPSED = """
select extract(epoch from max(created) - min(created)) from pgqueuer_log where entrypoint = $1 and status <> 'queued'
"""


async def work(order: Order) -> None:
    """Run a worker; the mode is the size of its batches."""
    connection = await asyncpg.connect(order.url)
    queuer = PgQueuer.from_asyncpg_connection(connection)

    @queuer.entrypoint("noop")
    async def noop(_: Job) -> None:
        pass

    @queuer.entrypoint("threads")
    async def threads(_: Job) -> None:
        await asyncio.to_thread(int)  # its documented way to run a blocking function

    @queuer.entrypoint("stamp")
    async def stamp(job: Job) -> None:
        note_delay(float(job.payload or b"0"))

    ready()
    await queuer.run(batch_size=int(order.mode), dequeue_timeout=timedelta(seconds=5))


async def drain(order: Order, entrypoint: str = "noop", line: str = "drain", full: int = 20_000) -> None:
    for batch in (100, 500, 1_000):
        connection = await asyncpg.connect(order.url)
        queries = await install(connection)
        await bulk(queries, entrypoint, jobs := order.count(full))
        with worker(order, str(batch)):
            await until_async(partial(empty_queue, connection))
        elapsed = await connection.fetchval(_ELAPSED, entrypoint)
        print_figure(line, f"batches of {batch}", per_second=jobs / float(elapsed))
        await connection.close()


async def drain_threads(order: Order) -> None:
    await drain(order, "threads", "drain_threads", 5_000)


async def start_one(order: Order) -> None:
    connection = await asyncpg.connect(order.url)
    queries = await install(connection)
    print_figure("start_one", per_second=await measure_starts(queries, order.count(1_000)))
    await connection.close()


async def start_hundred(order: Order) -> None:
    async with asyncpg.create_pool(order.url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        async with pool.acquire() as connection:
            await install(connection)
        queries = Queries(AsyncpgPoolDriver(pool))
        rate = await measure_starts(queries, order.count(20), callers=CALLERS)
        print_figure("start_hundred", f"{CONNECTIONS} connections", per_second=rate)


async def start_bulk(order: Order) -> None:
    connection = await asyncpg.connect(order.url)
    queries = await install(connection)
    jobs = order.count(50_000)
    began = time.perf_counter()
    await bulk(queries, "noop", jobs)
    print_figure("start_bulk", "lists of 5,000", per_second=jobs / (time.perf_counter() - began))
    await connection.close()


async def latency(order: Order) -> None:
    connection = await asyncpg.connect(order.url)
    queries = await install(connection)
    with worker(order, "10") as listening:
        await asyncio.sleep(1)
        async for sent_at in pace_async(order.count(200)):
            await queries.enqueue("stamp", str(sent_at).encode())
        await asyncio.sleep(1)
    print_latency(listening.noted, "LISTEN")
    await connection.close()


async def install(connection: asyncpg.Connection) -> Queries:
    queries = Queries(AsyncpgDriver(connection))
    if not await queries.has_table("pgqueuer"):
        await queries.install()
    await connection.execute("truncate pgqueuer, pgqueuer_log")
    return queries


async def empty_queue(connection: asyncpg.Connection) -> bool:
    return not await connection.fetchval("select count(*) from pgqueuer")


async def measure_starts(queries: Queries, each: int, callers: int = 1) -> float:
    async def call() -> None:
        for _ in range(each):
            await queries.enqueue("noop", None)

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    return callers * each / (time.perf_counter() - began)


async def bulk(queries: Queries, entrypoint: str, jobs: int, size: int = 5_000) -> None:
    while jobs > 0:
        some = min(jobs, size)
        await queries.enqueue([entrypoint] * some, [None] * some, [0] * some)
        jobs -= some


if __name__ == "__main__":
    uvloop.install()
    lines = (drain, drain_threads, start_one, start_hundred, start_bulk, latency)
    main("bench.peers.pgqueuer", {line.__name__: line for line in lines}, work)
