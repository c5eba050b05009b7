"""Liveness: a thread of its own tells the database that this process lives, however busy its loop is."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from retoma.logs import get_logger
from retoma.store.database import DATABASE_ERRORS, Database, Link
from retoma.store.statements import statements

log = get_logger("retoma.heart")
_SQL = statements("workers")
SECONDS_BETWEEN_BEATS = 2.0


class Heart:
    """Beats for `worker` until stopped; calls `on_death` from its thread if the worker was declared dead.

    If `overdue` says that steps hold up the event loop beyond their time, it gives their worker up: what it holds
    runs elsewhere, and `on_blocked` is called.

    A beat comes at least three times within `silence`, and one that is not answered is made again soon.
    """

    def __init__(
        self,
        database: Database,
        worker: int,
        silence: timedelta,
        *,
        on_death: Callable[[], None],
        overdue: Callable[[], list[str]],
        on_blocked: Callable[[], None],
    ) -> None:
        self._database = database
        self._worker = worker
        self._pause = min(SECONDS_BETWEEN_BEATS, silence.total_seconds() / 3)
        self._on_death = on_death
        self._overdue = overdue
        self._on_blocked = on_blocked
        self._loop_thread = threading.get_ident()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._beat_on()), name="retoma-heart", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)

    async def _beat_on(self) -> None:
        link = Link(self._database)
        was_overdue = False
        while not self._stopped.is_set():
            steps = self._overdue()
            # Twice, because after the whole process stood still the loop needs a moment to look.
            if steps and was_overdue:
                await self._give_up(link, steps)
                break
            was_overdue = bool(steps)
            lives = await self._beat(link)
            if lives is False:
                self._on_death()
                break
            await asyncio.to_thread(self._stopped.wait, self._pause if lives else self._pause / 4)
        await link.close()

    async def _give_up(self, link: Link, steps: list[str]) -> None:
        stack = "".join(traceback.format_stack(sys._current_frames()[self._loop_thread]))
        log.error("the event loop is blocked: make this step a plain `def`", worker=self._worker, steps=steps, at=stack)
        with suppress(*DATABASE_ERRORS):
            await link.fetch(_SQL["bury_blocked_worker"], [self._worker], patience=self._pause)
        self._on_blocked()

    async def _beat(self, link: Link) -> bool | None:
        """False if the worker was declared dead; None if the database does not answer, which is not death."""
        try:
            return bool(await link.fetch(_SQL["beat"], [self._worker], patience=self._pause))
        except Exception as error:  # noqa: BLE001  (the next beat tries again, whatever it was)
            log.warning("a beat was missed", worker=self._worker, error=error)
            return None
