"""Inject about one fault per second: each kind once, then at random."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from math import inf

from bench.chaos import fake_provider
from bench.chaos.processes import HEARTBEAT_TIMEOUT, Postgres, WorkerProcess
from bench.chaos.proxy import Call, Proxy
from retoma.errors import DatabaseUnavailable
from retoma.store import pools, workers
from retoma.store.database import CALL_TIMEOUT, Database

SECONDS_BETWEEN_SERVER_KILLS = 9.0
LONGEST_RESTART = 5.0  # of PostgreSQL
CALLS = (
    "retoma.finish_and_claim",
    "retoma.start_runs",
    "retoma.start_children",
    "retoma.cancel_run",
    "retoma.reap_dead_workers",
    "retoma.release_due_jobs",
)
EXTERNAL_WORK_CALLS = (
    "retoma.begin_effect",
    "retoma.end_effect",
    "retoma.poll_due",
    "retoma.record_poll",
    "retoma.claim_looks",
    "retoma.record_look",
    "retoma.record_callback",
)
REVIEW_CALLS = ("retoma.decide_review",)
WEBHOOK_CALLS = ("retoma.claim_deliveries", "retoma.record_delivery_attempt", "update retoma.deliveries")


def _response_lost(call: str) -> str:
    return f"response lost after commit ({call})"


OUTCOME_LOST = _response_lost(CALLS[0])


@dataclass(frozen=True)
class Kill:
    """A worker was killed, or paused for longer than the heartbeat timeout."""

    at: float
    pid: int


@dataclass(frozen=True)
class UnreachablePeriod:
    """From `since` to `until` the process `pid` (or any process, if None) might not reach the database."""

    since: float
    until: float
    pid: int | None = None


class FaultInjector:
    def __init__(
        self, dice: random.Random, proxy: Proxy, postgres: Postgres, workers: list[WorkerProcess], database: Database
    ) -> None:
        self.hits: Counter[str] = Counter()
        self.kills: list[Kill] = []
        self.deafness: list[UnreachablePeriod] = []
        self._dice = dice
        self._proxy = proxy
        self._postgres = postgres
        self._workers = workers
        self._database = database
        self._standing: set[asyncio.Task[None]] = set()
        self._server_killed_at = -inf
        self._kinds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (5, self._kill_worker),
            (3, self._stop_worker),
            (3, self._restart_worker),
            (2, self._kill_postgres),
            (2, self._cut_connections),
            (5, self._lose_answer),
            (2, self._lose_call),
            (1, self._blackhole),
            (1, self._freeze),
            (1, self._delay),
            (2, self._reap_twice),
            (2, self._drop_notifications),
            (3, self._change_capacity),
        ]

    async def run(self, until: float) -> None:
        """Inject faults until this time, then resume everything that was paused."""
        for fault in self._choices():
            if time.monotonic() >= until:
                break
            await fault()
            await asyncio.sleep(min(self._dice.uniform(0.3, 1.2), max(0.0, until - time.monotonic())))
        self._proxy.drops_notifications = False
        await asyncio.gather(*self._standing)

    async def finish(self) -> None:
        """Restore the capacity, so the remaining runs can end."""
        await self._set_capacity(fake_provider.CAPACITY)

    def _choices(self) -> Iterator[Callable[[], Awaitable[None]]]:
        weights, kinds = zip(*self._kinds, strict=True)
        yield from self._dice.sample(kinds, len(kinds))
        while True:
            yield from self._dice.choices(kinds, weights)

    async def _kill_worker(self) -> None:
        worker = self._dice.choice(self._workers)
        at = time.monotonic()
        if pid := worker.kill():
            self.kills.append(Kill(at, pid))
            self.hits["worker killed (SIGKILL)"] += 1

    async def _stop_worker(self) -> None:
        """Other faults continue in the meantime, but at least one worker keeps running."""
        standing = [worker for worker in self._workers if worker.is_stopped]
        moving = [worker for worker in self._workers if worker.is_ready and not worker.is_stopped]
        if moving and not standing:
            task = asyncio.ensure_future(self._pause_worker(self._dice.choice(moving)))
            self._standing.add(task)
            task.add_done_callback(self._standing.discard)

    async def _pause_worker(self, worker: WorkerProcess) -> None:
        at = time.monotonic()
        if pid := await worker.pause(HEARTBEAT_TIMEOUT + self._dice.uniform(1.5, 3)):
            self.kills.append(Kill(at, pid))
            self.deafness.append(UnreachablePeriod(at, time.monotonic(), pid))
            self.hits["worker paused beyond its lease, then continued"] += 1

    async def _restart_worker(self) -> None:
        if self._dice.choice(self._workers).terminate():
            self.hits["worker restarted (SIGTERM)"] += 1

    async def _kill_postgres(self) -> None:
        if time.monotonic() - self._server_killed_at > SECONDS_BETWEEN_SERVER_KILLS and self._postgres.kill():
            self._server_killed_at = time.monotonic()
            self._note_unreachable(LONGEST_RESTART)
            self.hits["PostgreSQL killed (SIGKILL)"] += 1

    async def _cut_connections(self) -> None:
        reset = self._dice.random() < 0.5
        if self._proxy.cut(reset=reset):
            self._note_unreachable(0.0)
            self.hits[f"all connections {'reset' if reset else 'closed'}"] += 1

    async def _lose_answer(self) -> None:
        """Lose the response to the next call of one kind, after its commit: of every job's call until one is lost."""
        name = self._dice.choice([*CALLS[:3], *EXTERNAL_WORK_CALLS, *REVIEW_CALLS, *WEBHOOK_CALLS])
        if not self.hits[OUTCOME_LOST]:
            name = CALLS[0]
        times = self._dice.choice([1, 1, 1, 3])
        self._proxy.loses_answer = _next(name, times, lambda: self._count(_response_lost(name)))

    async def _lose_call(self) -> None:
        name = self._dice.choice([*CALLS, *EXTERNAL_WORK_CALLS, *REVIEW_CALLS, *WEBHOOK_CALLS])
        self._proxy.loses_call = _next(name, 1, lambda: self._count("request lost before the server"))

    def _count(self, what: str) -> None:
        self.hits[what] += 1

    def _note_unreachable(self, seconds: float) -> None:
        now = time.monotonic()
        self.deafness.append(UnreachablePeriod(now, now + seconds))

    async def _blackhole(self) -> None:
        seconds = self._dice.choice([2.0, 2.0, HEARTBEAT_TIMEOUT + 1.5])
        self._note_unreachable(seconds)
        await self._proxy.blackhole(seconds)
        self.hits[f"black hole of {seconds:g} s"] += 1

    async def _freeze(self) -> None:
        self._note_unreachable(CALL_TIMEOUT)
        self.hits["connection frozen without a close"] += self._proxy.freeze(self._dice)

    async def _delay(self) -> None:
        self._proxy.delay = 0.05
        await asyncio.sleep(1.0)
        self._proxy.delay = 0.0
        self.hits["50 ms delay on each message for a second"] += 1

    async def _reap_twice(self) -> None:
        """Reap dead workers from four callers at once, concurrently with the workers themselves."""
        silence = timedelta(seconds=HEARTBEAT_TIMEOUT)
        with suppress(DatabaseUnavailable):
            await asyncio.gather(*(workers.reap_dead_workers(self._database, silence) for _ in range(4)))
            self.hits["four reapers at once"] += 1

    async def _drop_notifications(self) -> None:
        self._proxy.drops_notifications = not self._proxy.drops_notifications
        self.hits["notifications dropped from now on"] += self._proxy.drops_notifications

    async def _change_capacity(self) -> None:
        with suppress(DatabaseUnavailable):
            await self._set_capacity(self._dice.choice([0, 1, 2, fake_provider.MOST]))
            self.hits["pool capacity changed while in use"] += 1

    async def _set_capacity(self, slots: int) -> None:
        await pools.update_pool(self._database, fake_provider.POOL, capacity=slots)


def _next(name: str, times: int, on_hit: Callable[[], None]) -> Callable[[Call], bool]:
    left = times

    def loses(call: Call) -> bool:
        nonlocal left
        if left == 0 or name not in call.sql:
            return False
        left -= 1
        on_hit()
        return True

    return loses
