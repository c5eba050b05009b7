"""When the next call is due: something ended, somebody told of new work, or it is time to look."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import asyncpg
import structlog

from retoma.store.database import Database, Link, backoff
from retoma.store.statements import statements

log = structlog.get_logger("retoma.wakeup")
_WAKE = statements("workers")["wake"]
CHANNEL = "retoma_ready"
SHORTEST_LOOK = 0.05
LONGEST_LOOK = 1.0
SECONDS_BETWEEN_WAKES = 0.02


class Wakeup:
    """Everything works by looking alone; being told only makes it quick."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._event = asyncio.Event()
        self._maybe_work = True
        self._look_every = SHORTEST_LOOK
        self._next_look = 0.0
        self._listening: asyncio.Task[None] | None = None
        self._wake_link = Link(database)
        self._waking: asyncio.Task[None] | None = None

    def start(self) -> None:
        if not self._database.pooled:
            self._listening = asyncio.ensure_future(self._listen())

    async def close(self) -> None:
        for task in (self._listening, self._waking):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        await self._wake_link.close()

    def set(self) -> None:
        """There may be work."""
        self._maybe_work = True
        self._event.set()

    def outcome(self) -> None:
        """Something ended."""
        self._event.set()

    async def wait(self, has_outcomes: Callable[[], bool], is_hungry: Callable[[], bool]) -> None:
        """Until there is something to give back, or something may be had, or a second has passed."""
        while not has_outcomes():
            if is_hungry() and (self._maybe_work or time.monotonic() >= self._next_look):
                self._maybe_work = False
                self._next_look = time.monotonic() + self._look_every
                return
            self._event.clear()
            try:
                async with asyncio.timeout(
                    max(0.0, self._next_look - time.monotonic()) if is_hungry() else LONGEST_LOOK
                ):
                    await self._event.wait()
            except TimeoutError:
                if not is_hungry():
                    return

    def learn(self, taken: int, room: int) -> None:
        """Look again at once while each look fills the room; less and less often while it finds nothing."""
        if taken and taken >= room:
            self._maybe_work = True
        self._look_every = SHORTEST_LOOK if taken else min(self._look_every * 2, LONGEST_LOOK)
        self._next_look = time.monotonic() + self._look_every

    def wake_others(self) -> None:
        """Tell all workers, at most so often, that a commit of ours made work that may not be ours."""
        if self._waking is None or self._waking.done():
            self._waking = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await self._wake_link.fetch(_WAKE, [])
        await asyncio.sleep(SECONDS_BETWEEN_WAKES)

    async def _listen(self) -> None:
        while True:
            for wait in backoff():
                try:
                    await self._listen_once()
                    break
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                    log.warning("not listening", error=str(error))
                await asyncio.sleep(wait)

    async def _listen_once(self) -> None:
        """Listen until the connection ends."""
        connection = await self._database.connect()
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        try:
            await connection.add_listener(CHANNEL, lambda *_: self.set())
            self.set()  # what was told before is not told again
            await ended.wait()
        finally:
            connection.terminate()
