"""The figures that metrics show, read by as few looks at the database as many readers need."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from retoma.records import Figures
from retoma.store import gauges, workers
from retoma.store.database import Database

FRESH = 1.0  # seconds
SILENCE = timedelta(seconds=6)


class FiguresReader:
    """Gives figures that are at most a second old. However many ask at once, one of them looks."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._looking = asyncio.Lock()
        self._last: tuple[float, Figures] | None = None

    async def read(self) -> Figures:
        async with self._looking:
            if self._last is None or time.monotonic() - self._last[0] >= FRESH:
                self._last = (time.monotonic(), await look(self._database))
            return self._last[1]


async def look(database: Database) -> Figures:
    of_queues, of_pools = await gauges.ages(database)
    return Figures(
        queues=await gauges.queues(database, of_queues, SILENCE),
        pools=await gauges.pools(database, of_pools),
        open_runs=await gauges.open_runs(database),
        not_begun=await gauges.runs_not_begun(database),
        deliveries=await gauges.deliveries(database),
        tallies=await gauges.tallies(database),
        workers=sum(worker.silent_for <= SILENCE for worker in await workers.listed(database, limit=100_000)),
    )
