"""Absurd: durable steps on PostgreSQL, in SQL functions. Its worker has one connection, so several share a process."""

from __future__ import annotations

import asyncio
import subprocess
import time
from typing import Any

import psycopg
from absurd_sdk import Absurd, AsyncAbsurd

from bench.peers.common import (
    CALLERS,
    IN_FLIGHT,
    PAYLOAD,
    STEPS,
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

QUEUES = ("runs", "items")
CONNECTIONS = (1, 10)


def register(app: Any, items: list[AsyncAbsurd]) -> None:
    """Register the tasks of one connection; a fan-out starts its items through the clients `items` and waits."""

    @app.register_task(name="chain")
    async def chain(params: Any, ctx: Any) -> Any:
        value = params["value"]
        for number in range(STEPS):
            value = await ctx.step(f"s{number}", lambda value=value: _same(value))
        return value

    @app.register_task(name="fan")
    async def fan(params: Any, ctx: Any) -> int:
        children = await ctx.step("spawn", lambda: _spawn_items(items, params["items"]))
        return await ctx.step("join", lambda: _join_items(items, children))

    @app.register_task(name="noop")
    async def noop(params: Any, ctx: Any) -> None:
        pass

    @app.register_task(name="stamp")
    async def stamp(params: Any, ctx: Any) -> None:
        note_delay(params["sent_at"])


async def _same(value: Any) -> Any:
    return value


async def _spawn_items(items: list[AsyncAbsurd], count: int) -> list[str]:
    async def spawn(client: AsyncAbsurd, some: int) -> list[str]:
        return [str((await client.spawn("noop", {}, queue="items"))["task_id"]) for _ in range(some)]

    shares = [len(range(number, count, len(items))) for number in range(len(items))]
    return [child for some in await asyncio.gather(*map(spawn, items, shares)) for child in some]


async def _join_items(items: list[AsyncAbsurd], children: list[str]) -> int:
    """Join in one durable step: a step for each child would be slower."""

    async def wait(client: AsyncAbsurd, some: list[str]) -> int:
        return len([await client.await_task_result(child) for child in some])

    return sum(await asyncio.gather(*map(wait, items, [children[n :: len(items)] for n in range(len(items))])))


async def work(order: Order) -> None:
    """`4 50`: four connections, each polling every 50 ms. `4 50 items`: as many more for the queue of items."""
    connections, pause, *also = order.mode.split()
    if connections == "threads":
        await asyncio.to_thread(work_in_threads, order)
        return
    queues = ["runs"] * int(connections) + ["items"] * (int(connections) if also else 0)
    apps = [AsyncAbsurd(order.url, queue_name=queue) for queue in queues]
    items = [AsyncAbsurd(order.url, queue_name="items") for _ in range(4)]
    for app in apps:
        register(app, items)
    ready()
    each = max(1, order.concurrency // int(connections))
    claims = each if int(connections) == 1 else min(each, 20)
    how = {"concurrency": each, "batch_size": claims, "poll_interval": int(pause) / 1_000}
    await asyncio.gather(*(app.start_worker(**how) for app in apps))


def work_in_threads(order: Order) -> None:
    app = Absurd(order.url, queue_name="runs")
    app.register_task(name="noop")(lambda params, ctx: None)
    ready()
    app.start_worker(concurrency=order.concurrency, poll_interval=0.05)


def chain(order: Order, line: str = "chain", value: Any = 1) -> None:
    runs = order.count(1_000)
    for connections in CONNECTIONS:
        elapsed = measure_drain(order, "chain", runs, {"value": value}, f"{connections} 50")
        print_figure(line, format_mode(connections), per_second=runs * STEPS / elapsed)


def payload(order: Order) -> None:
    chain(order, "payload", {"text": PAYLOAD})


def in_flight(order: Order) -> None:
    runs = order.count(100)
    elapsed = measure_drain(order, "chain", runs, {"value": 1}, "1 50", concurrency=1)
    print_figure("chain_1", per_second=runs * STEPS / elapsed)


def fan(order: Order) -> None:
    items = order.count(1_000)
    for connections in CONNECTIONS:
        elapsed = measure_drain(order, "fan", 1, {"items": items}, f"{connections} 50 items")
        print_figure("fan", f"child tasks, {format_mode(connections)}", per_second=items / elapsed)


def drain(order: Order) -> None:
    jobs = order.count(4_000)
    for connections in CONNECTIONS:
        elapsed = measure_drain(order, "noop", jobs, {}, f"{connections} 50")
        print_figure("drain", format_mode(connections), per_second=jobs / elapsed)


def drain_threads(order: Order) -> None:
    jobs = order.count(2_000)
    print_figure(
        "drain_threads", "64 threads", per_second=jobs / measure_drain(order, "noop", jobs, {}, "threads 50", 64)
    )


def start_one(order: Order) -> None:
    install(order)
    app = Absurd(order.url, queue_name="runs")
    count = order.count(1_000)
    began = time.perf_counter()
    for _ in range(count):
        app.spawn("noop", {}, queue="runs")
    print_figure("start_one", per_second=count / (time.perf_counter() - began))


async def start_hundred(order: Order) -> None:
    """A client has one connection, which serialises its calls, so there are as many clients as callers."""
    install(order)
    apps = [AsyncAbsurd(order.url, queue_name="runs") for _ in range(CALLERS)]
    each = order.count(20)

    async def call(app: AsyncAbsurd, times: int) -> None:
        for _ in range(times):
            await app.spawn("noop", {}, queue="runs")

    await asyncio.gather(*(call(app, 1) for app in apps))
    began = time.perf_counter()
    await asyncio.gather(*(call(app, each) for app in apps))
    print_figure("start_hundred", "100 connections", per_second=CALLERS * each / (time.perf_counter() - began))
    for app in apps:
        await app.close()


async def latency(order: Order) -> None:
    install(order)
    app = AsyncAbsurd(order.url, queue_name="runs")
    with worker(order, "1 5", 20) as polling:
        await asyncio.sleep(1)
        async for sent_at in pace_async(order.count(200)):
            await app.spawn("stamp", {"sent_at": sent_at}, queue="runs")
        await asyncio.sleep(1)
    print_latency(polling.noted, "polled every 5 ms")
    await app.close()


def format_mode(connections: int) -> str:
    return "one connection" if connections == 1 else f"{connections} connections"


def measure_drain(order: Order, task: str, count: int, params: Any, mode: str, concurrency: int = IN_FLIGHT) -> float:
    """Return the seconds from the first start of a run to the last end, by the database's clock."""
    install(order)
    app = Absurd(order.url, queue_name="runs")
    for _ in range(count):
        app.spawn(task, params, queue="runs")
    app.close()
    with psycopg.connect(order.url, autocommit=True) as connection, worker(order, mode, concurrency):
        open_runs = "select count(*) from absurd.t_runs where state <> 'completed'"
        until(lambda: not connection.execute(open_runs).fetchone()[0])
        elapsed = "select extract(epoch from max(completed_at) - min(started_at)) from absurd.r_runs"
        return float(connection.execute(elapsed).fetchone()[0])


def install(order: Order) -> None:
    """Install Absurd's schema, with empty queues."""
    with psycopg.connect(order.url, autocommit=True) as connection:
        connection.execute("drop schema if exists absurd cascade")
    for command in (["init"], *(["create-queue", queue] for queue in QUEUES)):
        subprocess.run(["absurdctl", *command, "-d", order.url], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    lines = (chain, payload, in_flight, fan, drain, drain_threads, start_one, start_hundred, latency)
    main("bench.peers.absurd", {line.__name__: line for line in lines}, work)
