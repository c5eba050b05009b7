"""Maintenance, which every worker and server runs once a second for the whole installation.

It reaps dead workers, releases due jobs, processes due reviews, starts the watchdog, repairs runs without jobs, logs
orphans and updates the counters of metrics. In a worker, it also finds running jobs that are no longer wanted, and
wakes the poller of external work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from math import inf
from uuid import UUID

from retoma.engine import watchdog
from retoma.errors import DatabaseUnavailable
from retoma.identifiers import ClaimKey
from retoma.logs import get_logger
from retoma.store import effects, metrics, workers
from retoma.store.database import Database

log = get_logger(__name__)
SECONDS_BETWEEN_TICKS = 1.0
TICKS_BETWEEN_REFRESHES = 5
TICKS_BETWEEN_COUNTS = 60
TICKS_BETWEEN_REPAIRS = 10
RUNS_PER_REPAIR = 2_000
MAX_LOGGED_ORPHANS = 100
MAX_RELEASED_JOBS = 1_000
MIN_PAUSE_SECONDS = 0.01
MAX_PAUSE_SECONDS = 1.5  # a longer pause would look like an unreachable database
NOW = timedelta(0)


class Maintenance:
    def __init__(
        self,
        database: Database,
        *,
        heartbeat_timeout: timedelta,
        refresh: Callable[[], Awaitable[None]],
        worker: int,
        list_running: Callable[[], list[ClaimKey]],
        on_unwanted: Callable[[set[ClaimKey]], None],
        on_work: Callable[[], None],
        on_poll_due: Callable[[], None],
    ) -> None:
        self._database = database
        self._heartbeat_timeout = heartbeat_timeout
        self._refresh = refresh
        self._worker = worker
        self._list_running = list_running
        self._on_unwanted = on_unwanted
        self._on_work = on_work
        self._on_poll_due = on_poll_due
        self._answered_at = inf
        self._repaired_to: UUID | None = None  # the last open run that was checked; None starts with the first
        self._reachable_since: float | None = None  # monotonic; None if the database was always reachable

    async def run(self) -> None:
        """Tick until cancelled. If the database is unreachable, wait for it."""
        tick = 0
        while True:
            pause, began = SECONDS_BETWEEN_TICKS, time.monotonic()
            try:
                pause = await self._run_tick(tick)
            except DatabaseUnavailable as error:
                log.warning(
                    "maintenance_delayed",
                    message="maintenance waits for the database, which is unreachable",
                    error=error,
                )
            tick += 1
            # While vacuum cannot run, ticks take longer and longer: leave most of the time to the jobs.
            took = time.monotonic() - began
            await asyncio.sleep(max(pause, min(5 * took, MAX_PAUSE_SECONDS)))

    async def _run_tick(self, tick: int) -> float:
        """Run one tick. Return the seconds until the next, fewer if something is due sooner."""
        if tick % TICKS_BETWEEN_REFRESHES == 0:
            await self._refresh()
        if tick % TICKS_BETWEEN_COUNTS == 0:
            await metrics.update_counters(self._database)  # events must not pile up while no metrics are read
            await metrics.sample_queues(self._database, self._heartbeat_timeout)
        if tick % TICKS_BETWEEN_REPAIRS == 0:
            await self._repair_runs()
            await self._log_orphans()
        found = await workers.release_due_jobs(self._database, MAX_RELEASED_JOBS)
        if found.released:
            self._on_work()
        if found.poll_in is not None and found.poll_in <= NOW:
            self._on_poll_due()
        reachable_for = self._track_reachability()
        await self._reap_dead_workers(reachable_for)
        may_judge = reachable_for is None or reachable_for >= self._heartbeat_timeout
        if may_judge and found.watch_in is not None and found.watch_in <= NOW:
            await watchdog.check_due_runs(self._database, self._heartbeat_timeout)
            self._on_work()
        if jobs := self._list_running():
            self._on_unwanted(await workers.find_unwanted(self._database, self._worker, jobs))
        # A poll that is due is in progress; the time of the next is known once it has ended.
        poll_in = found.poll_in if found.poll_in and found.poll_in > NOW else None
        ahead = [one.total_seconds() for one in (found.next_in, poll_in) if one is not None]
        return min([SECONDS_BETWEEN_TICKS, *(max(MIN_PAUSE_SECONDS, one) for one in ahead)])

    def _track_reachability(self) -> timedelta | None:
        """Return how long the database has been reachable, or None if always.

        After an outage other workers need time to send a heartbeat before they can be declared dead.
        """
        now = time.monotonic()
        if now - self._answered_at > SECONDS_BETWEEN_TICKS + self._heartbeat_timeout.total_seconds() / 3:
            self._reachable_since = now
        self._answered_at = now
        return None if self._reachable_since is None else timedelta(seconds=now - self._reachable_since)

    async def _repair_runs(self) -> None:
        ended, self._repaired_to = await workers.repair_runs(self._database, self._repaired_to, RUNS_PER_REPAIR)
        for run in ended:
            log.error("run_repaired", message="ended a run that was open but had no job left to run", run=str(run))

    async def _log_orphans(self) -> None:
        for orphan in await effects.claim_unlogged_orphans(self._database, MAX_LOGGED_ORPHANS):
            log.warning(
                "effect_orphaned",
                message="work that a job started may still be running at a provider: look for it, then resolve it",
                run=str(orphan["run"]),
                step=orphan["step"],
                item=orphan["item"],
                effect=orphan["effect"],
            )

    async def _reap_dead_workers(self, reachable_for: timedelta | None) -> None:
        for worker, jobs in await workers.reap_dead_workers(self._database, self._heartbeat_timeout, reachable_for):
            log.warning(
                "worker_declared_dead",
                message="a worker sent no heartbeat within the timeout; its jobs are ready again",
                worker=worker,
                jobs=jobs,
            )
            self._on_work()
