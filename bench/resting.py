"""What a worker with nothing to do costs."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

from bench.stage import Rig
from bench.throughput import Samples
from bench.workers import workers

_TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = $1"


async def idle(rig: Rig) -> Samples:
    """Statements are counted as transactions, since each of an idle worker's is one. Counted from another database."""
    async with rig.server.fresh() as url, workers(url, 20, held=False) as (worker,), rig.server.connection() as watch:
        name = urlsplit(url).path.removeprefix("/")
        await asyncio.sleep(3 * min(1.0, rig.scale * 10))
        began, before, used = time.monotonic(), await watch.fetchval(_TRANSACTIONS, name), await worker.usage()
        await asyncio.sleep(max(0.5, 15 * rig.scale))
        seconds, after, using = (
            time.monotonic() - began,
            await watch.fetchval(_TRANSACTIONS, name),
            await worker.usage(),
        )
        return {
            "idle_cpu": [100 * (using.cpu_seconds - used.cpu_seconds) / seconds],
            "idle_statements": [(after - before) / seconds],
            "idle_megabytes": [using.megabytes],
        }
