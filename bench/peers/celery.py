"""Celery on Redis, configured to sync every write to disk. Results are in Redis too."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import celery
import celery.signals
import redis

from bench.peers.common import (
    CALLERS,
    NOTES,
    PAYLOAD,
    STEPS,
    Order,
    main,
    pace,
    print_figure,
    print_latency,
    ready,
    until,
    worker,
)

SAFE = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
THREADS = 64
POOLS = (("prefork", 2), ("threads", THREADS))
app = celery.Celery("bench")
app.conf.update(
    worker_prefetch_multiplier=64,
    task_acks_late=True,  # otherwise a killed worker loses what it holds
    worker_hijack_root_logger=False,
    worker_disable_rate_limits=True,
    broker_connection_retry_on_startup=True,
)


@app.task(name="same")
def same(value: Any) -> Any:
    return value


@app.task(name="length")
def length(values: list[Any]) -> int:
    return len(values)


@app.task(name="noop", ignore_result=True)
def noop() -> None:
    pass


@app.task(name="stamp", ignore_result=True)
def stamp(sent_at: float) -> None:
    NOTES.append(time.monotonic() - sent_at)


def work(order: Order) -> None:
    address, pool = order.mode.split()
    use(address)
    serving = app.Worker(pool=pool, concurrency=order.concurrency, loglevel="ERROR", without_gossip=True, quiet=True)
    celery.signals.worker_ready.connect(lambda **_: ready(), weak=False)
    serving.start()
    sys.exit(serving.exitcode)


def chain(order: Order, line: str = "chain", value: Any = 1) -> None:
    runs = order.count(200)
    for pool, concurrency in POOLS:
        with run_worker(order, pool, concurrency):
            began = time.perf_counter()
            steps = [same.s() for _ in range(STEPS - 1)]
            ends = [celery.chain(same.s(value), *steps).apply_async() for _ in range(runs)]
            for end in ends:
                end.get(timeout=120)
            print_figure(line, f"{pool}, {concurrency}", per_second=runs * STEPS / (time.perf_counter() - began))


def payload(order: Order) -> None:
    chain(order, "payload", {"text": PAYLOAD})


def fan(order: Order) -> None:
    items = order.count(1_000)
    for pool, concurrency in POOLS:
        with run_worker(order, pool, concurrency):
            began = time.perf_counter()
            celery.chord([same.s(item) for item in range(items)])(length.s()).get(timeout=120)
            print_figure("fan", f"chord, {pool}, {concurrency}", per_second=items / (time.perf_counter() - began))


def drain(order: Order) -> None:
    for pool, concurrency in POOLS:
        print_figure("drain", f"{pool}, {concurrency}", per_second=measure_drain(order, pool, concurrency))


def drain_threads(order: Order) -> None:
    print_figure("drain_threads", f"{THREADS} threads", per_second=measure_drain(order, "threads", THREADS))


def measure_drain(order: Order, pool: str, concurrency: int) -> float:
    jobs = order.count(3_000, least=100)
    address = open_empty_redis()
    for _ in range(jobs):
        noop.apply_async()
    store = redis.Redis.from_url(address)
    with worker(order, f"{address} {pool}", concurrency):
        began, remaining = time.perf_counter(), count_left(store)
        until(lambda: not count_left(store), every=0.005)
        return remaining / (time.perf_counter() - began)


def count_left(store: redis.Redis) -> int:
    """Return the number of waiting messages and of those that a worker holds."""
    return store.llen("celery") + store.hlen("unacked")


def start_one(order: Order) -> None:
    open_empty_redis()
    count = order.count(1_000)
    noop.apply_async()
    began = time.perf_counter()
    for _ in range(count):
        noop.apply_async()
    print_figure("start_one", per_second=count / (time.perf_counter() - began))


def start_hundred(order: Order) -> None:
    open_empty_redis()
    with ThreadPoolExecutor(CALLERS) as callers:
        count = order.count(3_000)
        list(callers.map(lambda _: noop.apply_async(), range(CALLERS)))
        began = time.perf_counter()
        list(callers.map(lambda _: noop.apply_async(), range(count)))
        print_figure("start_hundred", per_second=count / (time.perf_counter() - began))


def latency(order: Order) -> None:
    with run_worker(order, "threads", 20) as listening:
        stamp.apply_async((time.monotonic(),))
        time.sleep(1)
        for sent_at in pace(order.count(200)):
            stamp.apply_async((sent_at,))
        time.sleep(1)
    print_latency(listening.noted[1:], "threads")


@contextmanager
def run_worker(order: Order, pool: str, concurrency: int) -> Iterator[Any]:
    address = open_empty_redis()
    with worker(order, f"{address} {pool}", concurrency) as started:
        yield started


def open_empty_redis() -> str:
    """Return the address of an empty Redis, which this application uses from now on."""
    address = broker()
    use(address)
    redis.Redis.from_url(address).flushall()
    return address


@cache
def broker() -> str:
    """Start a Redis that ends with this process."""
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("redis-server is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="redis-", dir=os.environ.get("BENCH_WORKSHOP"))
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, *SAFE]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    atexit.register(lambda: (process.terminate(), process.wait(), shutil.rmtree(folder)))
    store = redis.Redis(port=port)
    until(lambda: is_answering(store), seconds=10)
    return f"redis://127.0.0.1:{port}/0"


def is_answering(store: redis.Redis) -> bool:
    try:
        return bool(store.ping())
    except redis.ConnectionError:
        return False


def use(address: str) -> None:
    app.conf.update(broker_url=address, result_backend=address)


if __name__ == "__main__":
    lines = (chain, payload, fan, drain, drain_threads, start_one, start_hundred, latency)
    main("bench.peers.celery", {line.__name__: line for line in lines}, work)
