"""DBOS: durable workflows as a library on PostgreSQL, started in the process itself or through its queues."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import psycopg
from dbos import DBOS, DBOSClient, DBOSConfig

from bench.peers.common import (
    CALLERS,
    NOTES,
    PAYLOAD,
    STEPS,
    Order,
    main,
    note_delay,
    pace,
    print_figure,
    print_latency,
    ready,
    until,
    worker,
)

CONNECTIONS = 20
THREADS = 64
_LEFT = "select count(*) from dbos.workflow_status where status <> 'SUCCESS'"
_ELAPSED = (
    "select (max(updated_at) - min(started_at_epoch_ms)) / 1000.0 from dbos.workflow_status where queue_name = 'work'"
)


@DBOS.step()
async def step(value: Any) -> Any:
    return value


@DBOS.step()
def step_in_thread(value: Any) -> Any:
    return value


@DBOS.workflow()
async def chain(value: Any) -> Any:
    for _ in range(STEPS):
        value = await step(value)
    return value


@DBOS.workflow()
def chain_in_thread(value: Any) -> Any:
    for _ in range(STEPS):
        value = step_in_thread(value)
    return value


@DBOS.workflow()
async def fan_of_steps(items: int) -> int:
    return len(await asyncio.gather(*(step(item) for item in range(items))))


@DBOS.workflow()
def fan_of_workflows(items: int) -> int:
    handles = [DBOS.enqueue_workflow("work", noop_in_thread) for _ in range(items)]
    return len([handle.get_result() for handle in handles])


@DBOS.workflow()
async def noop() -> None:
    pass


@DBOS.workflow()
def noop_in_thread() -> None:
    pass


@DBOS.workflow()
def stamp(sent_at: float) -> None:
    note_delay(sent_at)


def launch(order: Order) -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": order.url,
        "sys_db_pool_size": CONNECTIONS,
        "max_executor_threads": THREADS,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()


def work(order: Order) -> None:
    """`queue`: serve the queue. Otherwise start workflows here, and record how long they took.

    `async 200 1` and `threads 200 1`: 200 chains at once, with a kilobyte; `alone 200`: one by one; `fan 1000`.
    """
    launch(order)
    kind, *numbers = order.mode.split()
    if kind == "queue":
        DBOS.register_queue("work", worker_concurrency=order.concurrency, polling_interval_sec=0.01)
    ready()
    if kind == "async":
        asyncio.run(run_async(int(numbers[0]), _value(numbers[1])))
    elif kind == "threads":
        run_in_threads(int(numbers[0]), _value(numbers[1]))
    elif kind == "alone":
        run_alone(int(numbers[0]))
    elif kind == "fan":
        asyncio.run(run_fan(int(numbers[0])))
    time.sleep(600)


async def run_async(runs: int, value: Any) -> None:
    began = time.perf_counter()
    handles = [await DBOS.start_workflow_async(chain, value) for _ in range(runs)]
    await asyncio.gather(*(handle.get_result() for handle in handles))
    NOTES.append(time.perf_counter() - began)


def run_in_threads(runs: int, value: Any) -> None:
    began = time.perf_counter()
    for handle in [DBOS.start_workflow(chain_in_thread, value) for _ in range(runs)]:
        handle.get_result()
    NOTES.append(time.perf_counter() - began)


def run_alone(runs: int) -> None:
    began = time.perf_counter()
    for _ in range(runs):
        chain_in_thread(1)
    NOTES.append(time.perf_counter() - began)


async def run_fan(items: int) -> None:
    began = time.perf_counter()
    await (await DBOS.start_workflow_async(fan_of_steps, items)).get_result()
    NOTES.append(time.perf_counter() - began)


def _value(kilobytes: str) -> Any:
    return {"text": PAYLOAD} if int(kilobytes) else 1


def chains(order: Order, line: str = "chain", kilobytes: int = 0) -> None:
    runs = order.count(1_000)
    for kind in ("threads",) if kilobytes else ("async", "threads"):
        seconds = in_process(order, f"{kind} {runs} {kilobytes}", runs)
        print_figure(line, f"{kind}, started in process", per_second=runs * STEPS / seconds)


def payload(order: Order) -> None:
    chains(order, "payload", 1)


def in_flight(order: Order) -> None:
    runs = order.count(100)
    print_figure("chain_1", "started in process", per_second=runs * STEPS / in_process(order, f"alone {runs}", runs))


def fan(order: Order) -> None:
    items = order.count(1_000)
    print_figure("fan", "steps of one workflow", per_second=items / in_process(order, f"fan {items}", 1))
    seconds = measure_queue(order, "fan_of_workflows", 1, [items])
    print_figure("fan", "child workflows", per_second=items / seconds)


def drain(order: Order) -> None:
    jobs = order.count(1_000)
    print_figure("drain", "a queue polled every 10 ms", per_second=jobs / measure_queue(order, "noop", jobs, []))


def drain_threads(order: Order) -> None:
    jobs = order.count(1_000)
    print_figure(
        "drain_threads", f"{THREADS} threads", per_second=jobs / measure_queue(order, "noop_in_thread", jobs, [])
    )


def start_one(order: Order) -> None:
    client = open_client(order)
    count = order.count(500)
    began = time.perf_counter()
    for _ in range(count):
        client.enqueue({"queue_name": "work", "workflow_name": "noop"})
    print_figure("start_one", per_second=count / (time.perf_counter() - began))
    client.destroy()


def start_hundred(order: Order) -> None:
    client = open_client(order)
    count = order.count(2_000)
    with ThreadPoolExecutor(CALLERS) as callers:
        began = time.perf_counter()
        list(callers.map(lambda _: client.enqueue({"queue_name": "work", "workflow_name": "noop"}), range(count)))
    print_figure("start_hundred", f"{CONNECTIONS} connections", per_second=count / (time.perf_counter() - began))
    client.destroy()


def latency(order: Order) -> None:
    client = open_client(order)
    with worker(order, "queue", THREADS) as polling:
        time.sleep(2)
        for sent_at in pace(order.count(200)):
            client.enqueue({"queue_name": "work", "workflow_name": "stamp"}, sent_at)
        time.sleep(2)
    print_latency(polling.noted, "a queue polled every 10 ms")
    client.destroy()


def in_process(order: Order, mode: str, runs: int) -> float:
    open_client(order).destroy()
    with worker(order, mode) as local, psycopg.connect(order.url, autocommit=True) as connection:
        until(lambda: _all_ended(connection, runs), seconds=300)
        time.sleep(1.5)  # a handle polls for its result once a second
    return local.noted[0]


def measure_queue(order: Order, workflow: str, runs: int, inputs: list[Any]) -> float:
    client = open_client(order)
    for _ in range(runs):
        client.enqueue({"queue_name": "work", "workflow_name": workflow}, *inputs)
    client.destroy()
    with worker(order, "queue", THREADS), psycopg.connect(order.url, autocommit=True) as connection:
        until(lambda: _all_ended(connection, runs))
        return float(connection.execute(_ELAPSED).fetchone()[0])


def _all_ended(connection: psycopg.Connection, least: int) -> bool:
    ended = connection.execute("select count(*) from dbos.workflow_status where status = 'SUCCESS'").fetchone()[0]
    return ended >= least and not connection.execute(_LEFT).fetchone()[0]


def open_client(order: Order) -> DBOSClient:
    """Yield a client on empty tables."""
    make_tables(order)
    with psycopg.connect(order.url, autocommit=True) as connection:
        connection.execute("truncate dbos.workflow_status cascade")
    return DBOSClient(system_database_url=order.url, system_database_pool_size=CONNECTIONS)


@cache
def make_tables(order: Order) -> None:
    """Create the tables, which only a launched application does."""
    launch(order)
    DBOS.register_queue("work", polling_interval_sec=60)
    DBOS.destroy()


if __name__ == "__main__":
    lines = (payload, in_flight, fan, drain, drain_threads, start_one, start_hundred, latency)
    main("bench.peers.dbos", {"chain": chains, **{line.__name__: line for line in lines}}, work)
