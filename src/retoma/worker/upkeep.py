"""What any worker does for all, every second: declare the silent dead, make due work ready, notice what is unwanted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from math import inf
from uuid import UUID

from retoma.engine import watchdog
from retoma.errors import DatabaseUnavailable
from retoma.identifiers import Handle
from retoma.logs import get_logger
from retoma.store import gauges, workers
from retoma.store.database import Database

log = get_logger("retoma.upkeep")
SECONDS_BETWEEN_TICKS = 1.0
TICKS_BETWEEN_REFRESHES = 5
TICKS_BETWEEN_TALLIES = 60
TICKS_BETWEEN_REPAIRS = 10
RUNS_PER_REPAIR = 2_000
LARGEST_PROMOTION = 1_000
SHORTEST_PAUSE = 0.01
LONGEST_PAUSE = 1.5  # after a longer one the database would count as unreachable in between
NOW = timedelta(0)


class Upkeep:
    def __init__(
        self,
        database: Database,
        *,
        silence: timedelta,
        refresh: Callable[[], Awaitable[None]],
        worker: int,
        at_work: Callable[[], list[Handle]],
        on_unwanted: Callable[[set[Handle]], None],
        on_work: Callable[[], None],
        on_look: Callable[[], None],
    ) -> None:
        self._database = database
        self._silence = silence
        self._refresh = refresh
        self._worker = worker
        self._at_work = at_work
        self._on_unwanted = on_unwanted
        self._on_work = on_work
        self._on_look = on_look
        self._answered_at = inf
        self._repaired_to: UUID | None = None  # the last open run that was looked at; None begins with the first
        self._in_touch_since: float | None = None  # monotonic; None if it never lost the database

    async def run(self) -> None:
        """Tick until cancelled; a database that is away for a while is waited for."""
        tick = 0
        while True:
            pause, began = SECONDS_BETWEEN_TICKS, time.monotonic()
            try:
                pause = await self._tick(tick)
            except DatabaseUnavailable as error:
                log.warning("upkeep waits for the database", error=error)
            tick += 1
            # Where nothing can be vacuumed a tick takes ever longer: most of the time must stay for the jobs.
            took = time.monotonic() - began
            await asyncio.sleep(max(pause, min(5 * took, LONGEST_PAUSE)))

    async def _tick(self, tick: int) -> float:
        """One round. Gives the seconds until the next, fewer if something is due before."""
        if tick % TICKS_BETWEEN_REFRESHES == 0:
            await self._refresh()
        if tick % TICKS_BETWEEN_TALLIES == 0:
            await gauges.tally(self._database)  # what is to be counted must not pile up while nobody looks
        if tick % TICKS_BETWEEN_REPAIRS == 0:
            await self._repair()
        found = await workers.promote(self._database, LARGEST_PROMOTION)
        if found.promoted:
            self._on_work()
        if found.look_in is not None and found.look_in <= NOW:
            self._on_look()
        seen_for = self._in_touch_for()
        await self._sweep(seen_for)
        may_judge = seen_for is None or seen_for >= self._silence
        if may_judge and found.watch_in is not None and found.watch_in <= NOW:
            await watchdog.look(self._database, self._silence)
            self._on_work()
        if jobs := self._at_work():
            self._on_unwanted(await workers.unwanted(self._database, self._worker, jobs))
        # A look that is due is under way; the next is known when it has ended.
        look_in = found.look_in if found.look_in and found.look_in > NOW else None
        ahead = [one.total_seconds() for one in (found.next_in, look_in) if one is not None]
        return min([SECONDS_BETWEEN_TICKS, *(max(SHORTEST_PAUSE, one) for one in ahead)])

    def _in_touch_for(self) -> timedelta | None:
        """How long the database has answered us; None if always. When it comes back, others need time to beat, too."""
        now = time.monotonic()
        if now - self._answered_at > SECONDS_BETWEEN_TICKS + self._silence.total_seconds() / 3:
            self._in_touch_since = now
        self._answered_at = now
        return None if self._in_touch_since is None else timedelta(seconds=now - self._in_touch_since)

    async def _repair(self) -> None:
        ended, self._repaired_to = await workers.repair_runs(self._database, self._repaired_to, RUNS_PER_REPAIR)
        for run in ended:
            log.error("a run in which nothing lived any more is ended", run=str(run))

    async def _sweep(self, seen_for: timedelta | None) -> None:
        for worker, jobs in await workers.sweep(self._database, self._silence, seen_for):
            log.warning("a worker fell silent; its jobs are ready again", worker=worker, jobs=jobs)
            self._on_work()
