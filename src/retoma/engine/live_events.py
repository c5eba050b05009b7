"""Live events of all runs, read from the database once for all clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from uuid import UUID

from retoma.records import LiveEvent
from retoma.store import event_stream
from retoma.store.database import Database

MAX_EVENTS_PER_READ = 1_000
UNSETTLED_PAUSE = 0.02  # seconds, while a transaction is being committed
MIN_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 0.5


class LiveEventReader:
    """Returns events in the order of their ids. `through` is the last id up to which no event is missing.

    Transactions may commit in another order than they got their ids. An event is returned once no lower id can appear
    any more, a moment after it becomes visible.
    """

    def __init__(self, database: Database) -> None:
        self.through = 0
        self._database = database
        self._settled = 0
        self._mark = event_stream.NO_MARK
        self._pause = MIN_PAUSE_SECONDS

    async def start(self) -> None:
        """Start with the events from now on."""
        mark = await event_stream.advance_mark(self._database, event_stream.NO_MARK)
        while mark.settled != mark.number:
            await asyncio.sleep(UNSETTLED_PAUSE)
            mark = await event_stream.advance_mark(self._database, mark)
            if mark.settled is not None:
                break
        self._mark = mark
        self.through = self._settled = mark.settled or 0

    async def read(self) -> list[LiveEvent]:
        """Return new events, possibly none. There may be more: call it again."""
        if self._settled <= self.through:
            self._mark = await event_stream.advance_mark(self._database, self._mark)
            self._settled = max(self._settled, self._mark.settled or 0)
        if self._settled <= self.through:
            return []
        found = await event_stream.list_between(self._database, self.through, self._settled, limit=MAX_EVENTS_PER_READ)
        self.through = self._settled if len(found) < MAX_EVENTS_PER_READ else found[-1].id
        return found

    async def read_after_pause(self) -> list[LiveEvent]:
        """Return new events, after a pause that grows while there are none."""
        if self.through >= self._settled:
            await asyncio.sleep(UNSETTLED_PAUSE if self._mark.writers else self._pause)
        found = await self.read()
        self._pause = MIN_PAUSE_SECONDS if found else min(self._pause * 1.3, MAX_PAUSE_SECONDS)
        return found

    async def read_history(
        self, after: int, through: int, *, run: UUID | None = None, tenants: Iterable[int] | None = None
    ) -> list[LiveEvent]:
        """Return the first past events of a run, of these tenants or of all, for a client that reconnects."""
        return await event_stream.list_between(
            self._database,
            after,
            through,
            run=run,
            tenants=None if tenants is None else list(tenants),
            limit=MAX_EVENTS_PER_READ,
        )
