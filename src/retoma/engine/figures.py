"""The figures that metrics and pages show, read by as few looks at the database as many readers need."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Generic, TypeVar

from retoma.figures import Figures, Standing
from retoma.records import WorkerRecord
from retoma.settings import SILENCE
from retoma.store import gauges, health, versions, workers
from retoma.store.database import Database

FRESH = 1.0  # seconds
MOST_RUNS_FOR_PEOPLE = 4_000


Seen = TypeVar("Seen")


class Reader(Generic[Seen]):
    """Gives what `look` saw at most a second ago. However many ask at once, one of them looks."""

    def __init__(
        self, database: Database, look: Callable[[Database, timedelta], Awaitable[Seen]], silence: timedelta
    ) -> None:
        self._database = database
        self._look = look
        self._silence = silence
        self._looking = asyncio.Lock()
        self._last: tuple[float, Seen] | None = None

    async def read(self) -> Seen:
        async with self._looking:
            if self._last is None or time.monotonic() - self._last[0] >= FRESH:
                self._last = (time.monotonic(), await self._look(self._database, self._silence))
            return self._last[1]


async def look(database: Database, silence: timedelta = SILENCE) -> Figures:
    """A worker that was silent for longer than `silence` does not count."""
    of_queues, of_pools = await gauges.ages(database)
    live = await _live(database, silence)
    return Figures(
        queues=await gauges.queues(database, of_queues, silence),
        pools=await gauges.pools(database, of_pools),
        open_runs=await gauges.open_runs(database),
        not_begun=await gauges.runs_not_begun(database),
        reviews=await gauges.open_reviews(database),
        deliveries=await gauges.deliveries(database),
        tallies=await gauges.tallies(database),
        workers=len(live),
        pipelines={name: sum(one.serves(name) for one in live) for name in await versions.pipelines(database)},
        oldest_transaction=await _oldest_transaction(database),
    )


async def look_for_people(database: Database, silence: timedelta = SILENCE) -> Standing:
    """The part of it that a page shows, in a fraction of the time."""
    of_queues, of_pools = await gauges.ages(database)
    open_runs, stuck = await gauges.open_and_stuck(database)
    return Standing(
        queues=await gauges.queues(database, of_queues, silence, MOST_RUNS_FOR_PEOPLE),
        pools=await gauges.pools(database, of_pools),
        open_runs=open_runs,
        stuck=stuck,
        deliveries=await gauges.deliveries(database),
        workers=len(await _live(database, silence)),
    )


async def _oldest_transaction(database: Database) -> timedelta:
    found = await health.old_transactions(database, timedelta(0))
    return max((row["open_for"] for row in found), default=timedelta(0))


async def _live(database: Database, silence: timedelta) -> list[WorkerRecord]:
    return [worker for worker in await workers.alive(database) if worker.is_alive(silence)]
