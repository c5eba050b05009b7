"""Facts about attempts, buffered until they are written to the database."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from retoma.errors import DatabaseUnavailable
from retoma.store.database import Database

SECONDS_BETWEEN_WRITES = 1.0
MAX_ENTRIES_PER_WRITE = 1_000
Entry = TypeVar("Entry")


class WriteBuffer(Generic[Entry]):
    """Writes entries before the outcome of their attempt, so an ended run has all of them, and once a second, so a
    worker that dies loses few. Entries need no lease, and writing one twice must have no effect."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pending: deque[Entry] = deque()
        self._writing = asyncio.Lock()

    async def _write(self, entries: Sequence[Entry]) -> None:
        raise NotImplementedError

    def _log_delay(self, error: DatabaseUnavailable) -> None:
        raise NotImplementedError

    def _log_loss(self, entries: Sequence[Entry]) -> None:
        """Log entries that cannot be written, with the error that is being handled."""
        raise NotImplementedError

    async def flush(self) -> None:
        """Write all entries added before this call. If the database is unreachable, keep them for the next call."""
        if not self._pending and not self._writing.locked():
            return
        async with self._writing:
            while self._pending:
                some = [self._pending.popleft() for _ in range(min(len(self._pending), MAX_ENTRIES_PER_WRITE))]
                try:
                    await self._write(some)
                except asyncio.CancelledError:
                    self._pending.extendleft(reversed(some))
                    raise
                except DatabaseUnavailable as error:
                    self._pending.extendleft(reversed(some))
                    self._log_delay(error)
                    return
                except Exception:  # noqa: BLE001  (outcomes of jobs must be recorded, whatever happens to these entries)
                    self._log_loss(some)

    async def run(self) -> None:
        """Flush once a second until cancelled, for attempts that take long."""
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_WRITES)
            await self.flush()
