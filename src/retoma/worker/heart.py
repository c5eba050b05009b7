"""Liveness: a thread of its own tells the database that this process lives, however busy its loop is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from retoma.logs import get_logger
from retoma.store.database import Database, Link
from retoma.store.statements import statements

log = get_logger("retoma.heart")
_BEAT = statements("workers")["beat"]
SECONDS_BETWEEN_BEATS = 2.0


class Heart:
    """Beats for `worker` until stopped; calls `on_death` from its thread if the worker was declared dead."""

    def __init__(self, database: Database, worker: int, on_death: Callable[[], None]) -> None:
        self._database = database
        self._worker = worker
        self._on_death = on_death
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._beat_on()), name="retoma-heart", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)

    async def _beat_on(self) -> None:
        link = Link(self._database)
        while not self._stopped.is_set():
            if not await self._beat(link):
                self._on_death()
                break
            await asyncio.to_thread(self._stopped.wait, SECONDS_BETWEEN_BEATS)
        await link.close()

    async def _beat(self, link: Link) -> bool:
        """False if the worker was declared dead. A database that does not answer is not death."""
        try:
            return bool(await asyncio.wait_for(link.fetch(_BEAT, [self._worker]), SECONDS_BETWEEN_BEATS * 2))
        except Exception as error:  # noqa: BLE001  (the next beat tries again, whatever it was)
            log.warning("a beat was missed", worker=self._worker, error=str(error))
            return True
