"""Shared code of the scripts. Import only the standard library: each script runs in its own environment.

A script runs as the loader, which prints `{"line": ..., "per_second": ..., "mode": ...}` for every result. The
loader starts the same script again with `--work MODE`: that process is the worker. It prints `ready`, works until
its standard input ends, then prints what it has noted, for example how long each job was under way.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from bench.payload import PAYLOAD as PAYLOAD

STEPS = 10
IN_FLIGHT = 1_000
CALLERS = 100
STARTS_A_SECOND = 20
SECONDS_TO_START = 30
SECONDS_TO_END = 10


@dataclass(frozen=True)
class Order:
    """The arguments of a script. `mode` is set for a worker."""

    url: str
    module: str
    lines: tuple[str, ...] = ()
    scale: float = 1.0
    mode: str = ""
    concurrency: int = IN_FLIGHT

    def count(self, full: int, least: int = 5) -> int:
        return max(least, int(full * self.scale))

    def wants(self, line: str) -> bool:
        return line in self.lines


def main(module: str, load: dict[str, Callable[[Order], Any]], work: Callable[[Order], Any]) -> None:
    """Run the script: `load` has a function for every line that this engine supports."""
    asked = _parse_arguments()
    order = Order(
        url=os.environ["DATABASE_URL"],
        module=module,
        lines=tuple(asked.lines.split(",")),
        scale=asked.scale,
        mode=asked.work,
        concurrency=asked.concurrency,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if order.mode:
        _run(work, order)
        return
    troubles = [_try_line(line, take, order) for line, take in load.items() if order.wants(line)]
    sys.exit(any(troubles))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", default="")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--work", default="")
    parser.add_argument("--concurrency", type=int, default=IN_FLIGHT)
    return parser.parse_args()


def _try_line(line: str, take: Callable[[Order], Any], order: Order) -> bool:
    """Measure one line; a failure does not stop the others."""
    try:
        _run(take, order)
    except Exception as error:  # noqa: BLE001  (printed to the log)
        traceback.print_exc()
        print(f"{line}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return True
    return False


def _run(function: Callable[[Order], Any], order: Order) -> None:
    ended = function(order)
    if inspect.iscoroutine(ended):
        asyncio.run(ended)


# Output of libraries and children must not get between our lines.
_OUT = os.fdopen(os.dup(sys.stdout.fileno()), "w")
os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def print_line(text: str) -> None:
    print(text, file=_OUT, flush=True)


def print_figure(line: str, mode: str = "", **figure: float) -> None:
    print_line(json.dumps({"line": line, "mode": mode, **figure}))


def print_latency(seconds: list[float], mode: str = "") -> None:
    milliseconds = [1_000 * one for one in seconds]
    print_figure("latency_p50", mode, milliseconds=median(milliseconds))
    print_figure("latency_p99", mode, milliseconds=quantiles(milliseconds, n=100, method="inclusive")[98])


class Worker:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.noted: list[float] = []

    def ready(self) -> None:
        stuck = threading.Timer(SECONDS_TO_START, self._process.kill)
        stuck.start()
        line = self._process.stdout.readline()
        stuck.cancel()
        if line.strip() != "ready":
            raise RuntimeError(f"the worker said {line!r} and ended with {self._process.poll()}")

    def end(self) -> None:
        self._process.stdin.close()
        stuck = threading.Timer(SECONDS_TO_END, self._process.kill)
        stuck.start()
        self.noted = json.loads(self._process.stdout.read() or "[]")
        self._process.wait()
        stuck.cancel()


@contextmanager
def worker(order: Order, mode: str, concurrency: int = IN_FLIGHT) -> Iterator[Worker]:
    """Start the same script as a worker, and wait until it is ready. Its notes are available once it has ended."""
    command = [sys.executable, "-m", order.module, "--work", mode, "--concurrency", str(concurrency)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    started = Worker(process)
    try:
        started.ready()
        yield started
    finally:
        started.end()


NOTES: list[float] = []


def note_delay(sent_at: float) -> None:
    """In a worker: record the delay of a job, by the monotonic clock that all processes share."""
    NOTES.append(time.monotonic() - sent_at)


def ready() -> None:
    """In a worker: print `ready`, and from now on end with the standard input."""
    print_line("ready")
    threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    sys.stdin.read()
    print_line(json.dumps(NOTES))
    os._exit(0)


def until(done: Callable[[], bool], seconds: float = 120, every: float = 0.02) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done after {seconds:g} s")
        time.sleep(every)


async def until_async(done: Callable[[], Awaitable[bool]], seconds: float = 120, every: float = 0.02) -> None:
    async with asyncio.timeout(seconds):
        while not await done():  # noqa: ASYNC110  (it happens in another process)
            await asyncio.sleep(every)


def pace(count: int) -> Iterator[float]:
    """Yield when each of `count` starts is sent, twenty a second."""
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / STARTS_A_SECOND - time.monotonic()))
        yield time.monotonic()


async def pace_async(count: int) -> Any:
    began = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / STARTS_A_SECOND - time.monotonic()))
        yield time.monotonic()


def per_second(count: int, action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return count / (time.perf_counter() - began)
