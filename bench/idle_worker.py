"""Measure the cost of an idle worker with the default options, including the webhook sender."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from bench.process import cpu_seconds, megabytes
from bench.server import ROOT
from bench.testbed import Rig
from bench.throughput import Samples

_TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = $1"
_IS_UP = "select exists (select from retoma.workers)"
COMMAND = ("-m", "retoma", "worker", "bench.workloads:app", "--until-stdin-closes")


async def idle(rig: Rig) -> Samples:
    """Count statements as transactions, because each statement of an idle worker is one. Uses another database."""
    async with rig.server.fresh() as url, _worker(rig, url) as pid, rig.server.connection() as watch:
        name = urlsplit(url).path.removeprefix("/")
        await asyncio.sleep(3 * min(1.0, rig.scale * 10))
        began, before, used = time.monotonic(), await watch.fetchval(_TRANSACTIONS, name), cpu_seconds(pid)
        await asyncio.sleep(max(0.5, 15 * rig.scale))
        seconds, after, using = time.monotonic() - began, await watch.fetchval(_TRANSACTIONS, name), cpu_seconds(pid)
        return {
            "idle_cpu": [100 * (using - used) / seconds],
            "idle_statements": [(after - before) / seconds],
            "idle_megabytes": [megabytes(pid)],
        }


@asynccontextmanager
async def _worker(rig: Rig, url: str) -> AsyncIterator[int]:
    """Yield the worker's process once it is ready."""
    environment = os.environ | {"RETOMA_DATABASE_URL": url}
    process = await asyncio.create_subprocess_exec(sys.executable, *COMMAND, cwd=ROOT, env=environment, stdin=PIPE)
    assert process.stdin is not None
    try:
        async with asyncio.timeout(rig.timeout), rig.server.connection(url) as connection:
            while not await connection.fetchval(_IS_UP):  # noqa: ASYNC110  (nobody tells)
                await asyncio.sleep(0.05)
        yield process.pid
    finally:
        process.stdin.close()
        await process.wait()
