"""When the next call is due: something ended, somebody told of new work, or it is time to look."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from retoma.store.database import Database
from retoma.store.notify import Teller, listen

SHORTEST_LOOK = 0.05
LONGEST_LOOK = 1.0
SECONDS_BETWEEN_TELLS = 0.02


class Wakeup:
    """Everything works by looking alone; being told only makes it quick."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._event = asyncio.Event()
        self._maybe_work = True
        self._look_every = SHORTEST_LOOK
        self._next_look = 0.0
        self._listening: asyncio.Task[None] | None = None
        self._teller = Teller(database, at_most_every=SECONDS_BETWEEN_TELLS)

    def start(self) -> None:
        if not self._database.pooled:
            self._listening = asyncio.ensure_future(listen(self._database, self.set))

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
        await self._teller.close()

    def set(self) -> None:
        """There may be work."""
        self._maybe_work = True
        self._event.set()

    def outcome(self) -> None:
        """Something ended."""
        self._event.set()

    def tell_others(self) -> None:
        """A commit of ours made work that may be another worker's."""
        self._teller.tell()

    async def wait(self, has_outcomes: Callable[[], bool], is_hungry: Callable[[], bool]) -> None:
        """Until there is something to give back, or something may be had, or nothing was for a while."""
        while not has_outcomes():
            hungry = is_hungry()
            if hungry and (self._maybe_work or time.monotonic() >= self._next_look):
                self._maybe_work = False
                self._next_look = time.monotonic() + self._look_every
                return
            self._event.clear()
            patience = self._next_look - time.monotonic() if hungry else LONGEST_LOOK
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, patience)):
                    await self._event.wait()

    def learn(self, taken: int, room: int, look_in: float | None = None) -> None:
        """Look again at once while each look fills the room; less and less often while it finds nothing.

        `look_in` is when something can be had for sure.
        """
        if taken and taken >= room:
            self._maybe_work = True
        self._look_every = SHORTEST_LOOK if taken else min(self._look_every * 2, LONGEST_LOOK)
        self._next_look = time.monotonic() + (self._look_every if look_in is None else min(look_in, self._look_every))
