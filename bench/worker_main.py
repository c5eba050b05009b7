"""A worker in its own process: `python -m bench.worker_main CONCURRENCY LANES`, on RETOMA_DATABASE_URL.

It prints its resource usage when it is ready, starts when it reads `go`, and prints its usage when it reads `usage`.
It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

import structlog

from bench.process import megabytes
from bench.workloads import app
from retoma import Settings
from retoma.cli.worker import run_process
from retoma.store.database import Database
from retoma.worker import worker_session
from retoma.worker.worker import Worker


async def main(concurrency: int, links: int) -> None:
    worker_session.LINKS_PER_WORKER = links
    settings = Settings()
    async with await Database.open(settings) as database:
        worker = Worker(app, database, settings, concurrency=concurrency, name="bench")
        orders = await _orders()
        print_usage()
        if await orders.readline() == b"go\n":
            obeying = asyncio.ensure_future(_obey(orders, worker))
            await worker.run()
            await obeying


async def _orders() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _obey(orders: asyncio.StreamReader, worker: Worker) -> None:
    while await orders.readline():
        print_usage()
    worker.stop()


def print_usage() -> None:
    print(json.dumps({"cpu_seconds": time.process_time(), "megabytes": megabytes(os.getpid())}), flush=True)


if __name__ == "__main__":
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(30), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    run_process(main(int(sys.argv[1]), int(sys.argv[2])))
