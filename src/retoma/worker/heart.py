"""Liveness: a thread of its own tells the database that this process lives, however busy its loop is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta

from retoma.logs import get_logger
from retoma.store.database import Database, Link
from retoma.store.statements import statements

log = get_logger("retoma.heart")
_BEAT = statements("workers")["beat"]
SECONDS_BETWEEN_BEATS = 2.0


class Heart:
    """Beats for `worker` until stopped; calls `on_death` from its thread if the worker was declared dead.

    A beat comes at least three times within `silence`, and one that is not answered is made again soon.
    """

    def __init__(self, database: Database, worker: int, silence: timedelta, on_death: Callable[[], None]) -> None:
        self._database = database
        self._worker = worker
        self._pause = min(SECONDS_BETWEEN_BEATS, silence.total_seconds() / 3)
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
            lives = await self._beat(link)
            if lives is False:
                self._on_death()
                break
            await asyncio.to_thread(self._stopped.wait, self._pause if lives else self._pause / 4)
        await link.close()

    async def _beat(self, link: Link) -> bool | None:
        """False if the worker was declared dead; None if the database does not answer, which is not death."""
        try:
            return bool(await link.fetch(_BEAT, [self._worker], patience=self._pause))
        except Exception as error:  # noqa: BLE001  (the next beat tries again, whatever it was)
            log.warning("a beat was missed", worker=self._worker, error=str(error))
            return None
