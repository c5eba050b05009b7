"""Temporal's development server: one process, on SQLite instead of PostgreSQL, which syncs every commit to disk."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker import Worker as TemporalWorker

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
    worker,
)

QUEUE = "work"
LIMIT = {"start_to_close_timeout": timedelta(seconds=60)}
SAFE = ["--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=FULL"]


@activity.defn
async def same(value: Any) -> Any:
    return value


@workflow.defn
class Chain:
    @workflow.run
    async def run(self, value: Any) -> Any:
        for _ in range(STEPS):
            value = await workflow.execute_activity(same, value, **LIMIT)
        return value


@workflow.defn
class LocalChain:
    @workflow.run
    async def run(self, value: Any) -> Any:
        for _ in range(STEPS):
            value = await workflow.execute_local_activity(same, value, **LIMIT)
        return value


@workflow.defn
class Fan:
    @workflow.run
    async def run(self, items: int) -> int:
        return len(await asyncio.gather(*(workflow.execute_activity(same, item, **LIMIT) for item in range(items))))


@workflow.defn
class LocalFan:
    @workflow.run
    async def run(self, items: int) -> int:
        each = (workflow.execute_local_activity(same, item, **LIMIT) for item in range(items))
        return len(await asyncio.gather(*each))


@workflow.defn
class Noop:
    @workflow.run
    async def run(self) -> None:
        pass


@workflow.defn
class Stamp:
    @workflow.run
    async def run(self, sent_at: float) -> None:
        note_delay(sent_at)


async def work(order: Order) -> None:
    client = await Client.connect(order.mode)
    serving = TemporalWorker(
        client,
        task_queue=QUEUE,
        workflows=[Chain, LocalChain, Fan, LocalFan, Noop, Stamp],
        activities=[same],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_cached_workflows=2 * IN_FLIGHT,
        max_concurrent_workflow_tasks=order.concurrency,
        max_concurrent_activities=order.concurrency,
        max_concurrent_local_activities=order.concurrency,
        max_concurrent_workflow_task_polls=20,
        max_concurrent_activity_task_polls=20,
    )
    ready()
    await serving.run()


async def chain(order: Order) -> None:
    async with run_worker(order) as client:
        for mode, kind, full in (("activities", Chain, 100), ("local activities", LocalChain, 1_000)):
            runs = order.count(full)
            seconds = await measure_rate(runs, lambda kind=kind: execute(client, kind, 1))
            print_figure("chain", mode, per_second=runs * STEPS / seconds)


async def payload(order: Order) -> None:
    runs = order.count(500)
    async with run_worker(order) as client:
        seconds = await measure_rate(runs, lambda: execute(client, LocalChain, {"text": PAYLOAD}))
        print_figure("payload", "local activities", per_second=runs * STEPS / seconds)


async def in_flight(order: Order) -> None:
    async with run_worker(order) as client:
        for mode, kind in (("activities", Chain), ("local activities", LocalChain)):
            runs = order.count(20)
            seconds = await measure_rate(runs, lambda kind=kind: execute(client, kind, 1), asyncio.Semaphore(1))
            print_figure("chain_1", mode, per_second=runs * STEPS / seconds)


async def fan(order: Order) -> None:
    items = order.count(1_000)
    async with run_worker(order) as client:
        for mode, kind in (("activities", Fan), ("local activities", LocalFan)):
            seconds = await measure_rate(1, lambda kind=kind: execute(client, kind, items))
            print_figure("fan", mode, per_second=items / seconds)


async def drain(order: Order) -> None:
    jobs = order.count(500)
    async with run_worker(order) as client:
        seconds = await measure_rate(jobs, lambda: execute(client, Noop))
        print_figure("drain", "workflows, their start included", per_second=jobs / seconds)


async def start_one(order: Order) -> None:
    async with run_worker(order, working=False) as client:
        count = order.count(300)
        began = time.perf_counter()
        for _ in range(count):
            await start(client, Noop)
        print_figure("start_one", per_second=count / (time.perf_counter() - began))


async def start_hundred(order: Order) -> None:
    async with run_worker(order, working=False) as client:
        count = order.count(1_000)
        waiting = asyncio.Semaphore(CALLERS)
        seconds = await measure_rate(count, lambda: start(client, Noop), waiting)
        print_figure("start_hundred", per_second=count / seconds)


async def latency(order: Order) -> None:
    async with server(order) as client:
        with worker(order, client.service_client.config.target_host, IN_FLIGHT) as polling:
            await asyncio.sleep(1)
            async for sent_at in pace_async(order.count(200)):
                await start(client, Stamp, sent_at)
            await asyncio.sleep(2)
        print_latency(polling.noted, "to the first line of the workflow")


async def start(client: Client, kind: Any, *given: Any) -> Any:
    return await client.start_workflow(kind.run, *given, id=uuid4().hex, task_queue=QUEUE)


async def execute(client: Client, kind: Any, *given: Any) -> Any:
    return await (await start(client, kind, *given)).result()


async def measure_rate(
    times: int, action: Callable[[], Awaitable[Any]], waiting: asyncio.Semaphore | None = None
) -> float:
    async def one() -> None:
        async with waiting or asyncio.Semaphore():
            await action()

    await action()
    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(times)))
    return time.perf_counter() - began


@asynccontextmanager
async def run_worker(order: Order, working: bool = True) -> AsyncIterator[Client]:
    async with server(order) as client:
        if not working:
            yield client
            return
        with worker(order, client.service_client.config.target_host, IN_FLIGHT):
            yield client


@asynccontextmanager
async def server(order: Order) -> AsyncIterator[Client]:
    """Start a development server with a new file."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_WORKSHOP")) as folder:
        environment = await WorkflowEnvironment.start_local(
            dev_server_existing_path=shutil.which("temporal"),
            dev_server_database_filename=f"{folder}/temporal.db",
            dev_server_extra_args=SAFE,
            dev_server_log_level="error",
        )
        async with environment:
            yield environment.client


if __name__ == "__main__":
    lines = (chain, payload, in_flight, fan, drain, start_one, start_hundred, latency)
    main("bench.peers.temporal", {line.__name__: line for line in lines}, work)
