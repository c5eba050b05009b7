"""The loop of a sender: claim what is due in an outbox, and send it concurrently.

Any number of processes may send, without a leader. If one dies between sending and recording, another sends the same
again once its lease has expired.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Generic, TypeVar

from retoma.store.database import Database
from retoma.store.notify import listen

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.5, 2.0  # between polls, unless a notification comes
Item = TypeVar("Item")


class OutboxSender(ABC, Generic[Item]):
    """Sends until `stop`, which lets attempts in progress finish."""

    def __init__(self, database: Database, *, concurrency: int) -> None:
        self._database = database
        self._concurrency = concurrency
        self._sending: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._stopping = False

    @abstractmethod
    async def _claim_due(self, room: int) -> list[Item]:
        """Claim up to `room` items that are due."""

    @abstractmethod
    async def _send(self, item: Item) -> None:
        """Send one item and record the outcome. Raise nothing."""

    @abstractmethod
    def _log_delay(self, error: Exception) -> None:
        """Log that nothing could be claimed."""

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Send until stopped. If the database is unreachable, wait for it."""
        listening = None if self._database.pooled else asyncio.ensure_future(listen(self._database, self._wake.set))
        poll_seconds = MIN_POLL_SECONDS
        try:
            while not self._stopping:
                self._wake.clear()
                try:
                    await self._start_due()
                except Exception as error:  # noqa: BLE001  (everything stays due; the next poll tries again)
                    self._log_delay(error)
                woken = await self._wait_for_wake(within=poll_seconds)
                poll_seconds = MIN_POLL_SECONDS if woken else min(2 * poll_seconds, MAX_POLL_SECONDS)
        finally:
            if listening is not None:
                listening.cancel()
            await asyncio.gather(*self._sending, *([listening] if listening else []), return_exceptions=True)

    async def _wait_for_wake(self, within: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                return await self._wake.wait()
        return False

    async def send_due(self) -> int:
        """Send everything that is due, and what becomes due by that. Return the number of attempts. For tests."""
        sent = 0
        while claimed := await self._claim_due(self._concurrency):
            await asyncio.gather(*map(self._send, claimed))
            sent += len(claimed)
        return sent

    async def _start_due(self) -> None:
        room = self._concurrency - len(self._sending)
        if room > 0:
            for item in await self._claim_due(room):
                task = asyncio.ensure_future(self._send(item))
                self._sending.add(task)
                task.add_done_callback(self._on_sent)

    def _on_sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._wake.set()  # there is room, and the next of the same run may be due
