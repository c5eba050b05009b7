"""The worker: takes jobs of its queues, runs their steps, and gives back how they ended."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence

from retoma.app import App
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.settings import Settings
from retoma.store.database import Database
from retoma.worker.catalog import Catalog
from retoma.worker.children import Children
from retoma.worker.life import Life
from retoma.worker.threads import Threads
from retoma.worker.wakeup import Wakeup

log = get_logger("retoma.worker")


class Worker:
    """Works until `stop`: then it takes nothing new, lets its jobs end within the drain time, and gives back the rest.

    `on_blocked` is called, from another thread, when a step blocks the event loop long beyond its timeout.

    A worker that was declared dead, for example because its machine slept, forgets what it held and goes on under
    a new id.
    """

    def __init__(
        self,
        app: App,
        database: Database,
        settings: Settings,
        *,
        queues: Sequence[str] = (),
        concurrency: int = 20,
        name: str | None = None,
        on_blocked: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self.queues = list(queues) or app.queues
        self.concurrency = concurrency
        self._on_blocked = on_blocked
        self._database = database
        self._settings = settings
        self._catalog = Catalog(app)
        self._wakeup = Wakeup(database)
        self._threads = Threads(concurrency)
        self._children = Children()
        self._life: Life | None = None
        self._stopping = False

    def stop(self) -> None:
        """Ask it to drain and end. Call it on the loop, for example from a signal handler."""
        self._stopping = True
        if self._life is not None:
            self._life.drain()

    def stop_at_once(self) -> None:
        """Stop, and give back now what still runs, without letting it end."""
        self.stop()
        if self._life is not None:
            self._life.interrupt()

    async def run(self) -> None:
        """Work until stopped."""
        async with self._catalog.opened_resources():
            await self._run()

    async def _run(self) -> None:
        self._wakeup.start()
        try:
            while not self._stopping:
                try:
                    await self._catalog.open(self._database)
                    await self._live()
                except DatabaseUnavailable as error:
                    log.warning("waiting for the database", error=error)
        finally:
            self._threads.close()
            await self._children.close()
            await self._wakeup.close()

    async def _live(self) -> None:
        if self._stopping:
            return
        self._life = self._new_life()
        await self._life.live(self.name, self.concurrency)

    def _new_life(self) -> Life:
        return Life(
            self._database,
            self._settings,
            self._catalog,
            self._wakeup,
            self._threads,
            self._children,
            queues=self.queues,
            concurrency=self.concurrency,
            on_blocked=self._on_blocked,
        )
