"""Decides when a worker makes its next call: a job has ended, a notification came, or it is time to poll."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from retoma.store.database import Database
from retoma.store.notify import WorkerNotifier, listen

MIN_POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 1.0
SECONDS_BETWEEN_NOTIFICATIONS = 0.02


class Wakeup:
    """Polling alone finds all work; notifications only make it faster."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.event = asyncio.Event()  # set whenever a waiting session should look again
        self._maybe_work = True
        self._poll_interval = MIN_POLL_SECONDS
        self._next_poll = 0.0
        self._listening: asyncio.Task[None] | None = None
        self._notifier = WorkerNotifier(database, at_most_every=SECONDS_BETWEEN_NOTIFICATIONS)

    def start(self) -> None:
        if not self._database.pooled:
            self._listening = asyncio.ensure_future(listen(self._database, self.notify_work))

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
        await self._notifier.close()

    def notify_work(self) -> None:
        """Claim soon: there may be work."""
        self._maybe_work = True
        self.event.set()

    def notify_others(self) -> None:
        """Notify other workers: a commit of this one created work that they may run."""
        self._notifier.notify()

    async def wait(self, has_outcomes: Callable[[], bool], has_room: Callable[[], bool]) -> None:
        """Wait until there are outcomes to report, or there may be work, or it is time to poll."""
        while not has_outcomes():
            wants_work = has_room()
            if wants_work and (self._maybe_work or time.monotonic() >= self._next_poll):
                self._maybe_work = False
                self._next_poll = time.monotonic() + self._poll_interval
                return
            self.event.clear()
            patience = self._next_poll - time.monotonic() if wants_work else MAX_POLL_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, patience)):
                    await self.event.wait()

    def record_claim(self, claimed: int, room: int, next_claim_in: float | None = None) -> None:
        """Poll again at once while each claim fills the room, and less and less often while claims find nothing.

        Work is certain to be ready in `next_claim_in` seconds.
        """
        if claimed and claimed >= room:
            self._maybe_work = True
        self._poll_interval = MIN_POLL_SECONDS if claimed else min(self._poll_interval * 2, MAX_POLL_SECONDS)
        self._next_poll = time.monotonic() + (
            self._poll_interval if next_claim_in is None else min(next_claim_in, self._poll_interval)
        )
