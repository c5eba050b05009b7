"""Procrastinate: a job queue on PostgreSQL. It has no durable steps."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector

from bench.peers.common import (
    CALLERS,
    Order,
    main,
    note_delay,
    pace_async,
    print_figure,
    print_latency,
    ready,
    until,
    worker,
)

CONNECTIONS = 20
_ELAPSED = (
    "select extract(epoch from max(at) - min(at)) from procrastinate_events where type in ('started', 'succeeded')"
)
_LEFT = "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"


def application(url: str) -> App:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=CONNECTIONS, max_size=CONNECTIONS))

    @app.task(name="noop", queue="noop")
    async def noop() -> None:
        pass

    @app.task(name="threads", queue="threads")
    def threads() -> None:
        pass

    @app.task(name="stamp", queue="stamp")
    async def stamp(sent_at: float) -> None:
        note_delay(sent_at)

    return app


async def work(order: Order) -> None:
    app = application(order.url)
    async with app.open_async():
        ready()
        await app.run_worker_async(queues=[order.mode], concurrency=order.concurrency)


async def drain(order: Order, task: str = "noop", line: str = "drain", full: int = 1_500) -> None:
    jobs = order.count(full)
    for concurrency in (20, 100):
        async with OpenApplication(order) as app:
            await app.tasks[task].batch_defer_async(*[{}] * jobs)
        with psycopg.connect(order.url, autocommit=True) as connection, worker(order, task, concurrency):
            until(lambda connection=connection: not connection.execute(_LEFT).fetchone()[0])
            elapsed = connection.execute(_ELAPSED).fetchone()[0]
        print_figure(line, f"{concurrency} at once", per_second=jobs / float(elapsed))


async def drain_threads(order: Order) -> None:
    await drain(order, "threads", "drain_threads")


async def start_one(order: Order) -> None:
    async with OpenApplication(order) as app:
        print_figure("start_one", per_second=await measure_starts(app, order.count(500)))


async def start_hundred(order: Order) -> None:
    async with OpenApplication(order) as app:
        rate = await measure_starts(app, order.count(20), callers=CALLERS)
        print_figure("start_hundred", f"{CONNECTIONS} connections", per_second=rate)


async def start_bulk(order: Order) -> None:
    jobs = order.count(20_000)
    async with OpenApplication(order) as app:
        began = time.perf_counter()
        await app.tasks["noop"].batch_defer_async(*[{}] * jobs)
        print_figure("start_bulk", "batch_defer", per_second=jobs / (time.perf_counter() - began))


async def latency(order: Order) -> None:
    async with OpenApplication(order) as app:
        with worker(order, "stamp", 20) as listening:
            await asyncio.sleep(1)
            async for sent_at in pace_async(order.count(200)):
                await app.tasks["stamp"].defer_async(sent_at=sent_at)
            await asyncio.sleep(1)
        print_latency(listening.noted, "LISTEN")


class OpenApplication:
    """Open the application on empty tables."""

    def __init__(self, order: Order) -> None:
        self._url = order.url
        self._app = application(order.url)

    async def __aenter__(self) -> App:
        await self._app.open_async()
        with psycopg.connect(self._url, autocommit=True) as connection:
            there = connection.execute("select to_regclass('procrastinate_jobs')").fetchone()[0]
            if there:
                connection.execute("truncate procrastinate_jobs, procrastinate_events cascade")
        if not there:
            await self._app.schema_manager.apply_schema_async()
        return self._app

    async def __aexit__(self, *_: Any) -> None:
        await self._app.close_async()


async def measure_starts(app: App, each: int, callers: int = 1) -> float:
    async def call() -> None:
        for _ in range(each):
            await app.tasks["noop"].defer_async()

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    return callers * each / (time.perf_counter() - began)


if __name__ == "__main__":
    lines = (drain, drain_threads, start_one, start_hundred, start_bulk, latency)
    main("bench.peers.procrastinate", {line.__name__: line for line in lines}, work)
