"""Notifications of new work for idle workers. They may get lost, so idle workers also poll."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf

from retoma.logs import get_logger
from retoma.store.database import CALL_TIMEOUT, DATABASE_ERRORS, Database, DedicatedConnection, backoff
from retoma.store.statements import statements

log = get_logger(__name__)
_NOTIFY = statements("workers")["notify_workers"]
CHANNEL = "retoma_ready"
QUIET_SECONDS = 0.02
SECONDS_BETWEEN_CHECKS = 30.0  # of the connection that listens


class WorkerNotifier:
    """Notifies workers of new work, at most once every `at_most_every` seconds.

    It does so outside the transaction that created the work, because a NOTIFY inside would serialise all commits.
    """

    def __init__(self, database: Database, at_most_every: float = 0.0) -> None:
        self._link = DedicatedConnection(database)
        self._pause = at_most_every
        self._notifying: asyncio.Task[None] | None = None
        self._again = False
        self._new_work_at = -inf  # on the monotonic clock

    def record_new_work(self) -> bool:
        """Record that there is new work now. Return whether there was none for a while: then the caller can notify
        directly."""
        now = time.monotonic()
        was_quiet = now - self._new_work_at > QUIET_SECONDS and (self._notifying is None or self._notifying.done())
        self._new_work_at = now
        return was_quiet

    def notify(self) -> None:
        if self._notifying is None or self._notifying.done():
            self._notifying = asyncio.ensure_future(self._notify())
        else:
            self._again = True

    async def close(self) -> None:
        self._pause = 0.0
        if self._notifying is not None:
            await self._notifying
        await self._link.close()

    async def _notify(self) -> None:
        self._again = True
        while self._again:
            self._again = False
            with suppress(*DATABASE_ERRORS):
                await self._link.fetch(_NOTIFY, [])
            await asyncio.sleep(self._pause)


async def listen(database: Database, on_notify: Callable[[], None]) -> None:
    """Call `on_notify` for new work and after each reconnection, until cancelled."""
    while True:
        for wait in backoff():
            try:
                await _listen_once(database, on_notify)
                break
            except DATABASE_ERRORS as error:
                log.warning("listen_failed", message="could not listen for notifications; retrying", error=error)
            await asyncio.sleep(wait)


async def _listen_once(database: Database, on_notify: Callable[[], None]) -> None:
    """Listen until the connection ends. Raise an error if it no longer answers."""
    connection = await database.connect()
    ended = asyncio.Event()
    connection.add_termination_listener(lambda _: ended.set())
    try:
        await connection.add_listener(CHANNEL, lambda *_: on_notify())
        on_notify()  # earlier notifications are not repeated
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), SECONDS_BETWEEN_CHECKS)
                return
            # The server may be gone without having closed the connection, which only a query shows.
            await connection.execute("select", timeout=CALL_TIMEOUT)
    finally:
        connection.terminate()
