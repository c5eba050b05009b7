"""What happens in all runs, as it happens: read once, for however many watch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from uuid import UUID

from retoma.records import LiveEvent
from retoma.states import RunState
from retoma.store import live
from retoma.store.database import Database

MOST_AT_ONCE = 1_000
UNSETTLED_PAUSE = 0.02  # seconds: somebody is just committing
SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 0.5


class LiveReader:
    """Gives events in the order of their numbers. `through` is the last number up to which nothing is missing.

    Transactions end in another order than that in which they took their numbers: an event is given once no lower one
    can come any more, which is a moment later than it could be seen.
    """

    def __init__(self, database: Database) -> None:
        self.through = 0
        self._database = database
        self._settled = 0
        self._mark = live.NO_MARK
        self._pause = SHORTEST_PAUSE

    async def begin(self) -> None:
        """Begin with what comes from now on."""
        mark = await live.next_mark(self._database, live.NO_MARK)
        while mark.settled != mark.number:
            await asyncio.sleep(UNSETTLED_PAUSE)
            mark = await live.next_mark(self._database, mark)
            if mark.settled is not None:
                break
        self._mark = mark
        self.through = self._settled = mark.settled or 0

    async def read(self) -> list[LiveEvent]:
        """What has come and is settled; there may be more at once, and nothing is an answer too."""
        if self._settled <= self.through:
            self._mark = await live.next_mark(self._database, self._mark)
            self._settled = max(self._settled, self._mark.settled or 0)
        if self._settled <= self.through:
            return []
        found = await live.between(self._database, self.through, self._settled, limit=MOST_AT_ONCE)
        self.through = self._settled if len(found) < MOST_AT_ONCE else found[-1].id
        return found

    async def read_after_pause(self) -> list[LiveEvent]:
        """The same, after as long as it is worth waiting."""
        if self.through >= self._settled:
            await asyncio.sleep(UNSETTLED_PAUSE if self._mark.writers else self._pause)
        found = await self.read()
        self._pause = SHORTEST_PAUSE if found else min(self._pause * 1.3, LONGEST_PAUSE)
        return found

    async def history(
        self, after: int, through: int, *, run: UUID | None = None, tenant: int | None = None
    ) -> list[LiveEvent]:
        """The first of what was before, for one who was away: of one run, of a tenant's, or of all."""
        if run is not None:
            return await live.of_run_between(self._database, run, after, through, limit=MOST_AT_ONCE)
        return await live.between(self._database, after, through, tenant=tenant, limit=MOST_AT_ONCE)

    async def states(self, runs: Iterable[UUID]) -> dict[UUID, RunState]:
        """How these runs stand now."""
        return await live.states(self._database, runs)

    async def is_told(self, run: UUID, after: int) -> bool:
        """Whether one who has heard `after` has heard all of this run that there is."""
        return await live.last_of_run(self._database, run) <= after
