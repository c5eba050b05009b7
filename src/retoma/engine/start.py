"""Starting runs: many concurrent starts share one transaction, and each is answered after its commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from retoma.errors import Conflict, DatabaseUnavailable
from retoma.store.database import PATIENCE, Database, Link, Row, backoff, is_cut, is_passing
from retoma.store.notify import Teller
from retoma.store.statements import statements

_SQL = statements("calls")
LARGEST_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Start:
    """One run to be started. `input` and `hook` are JSON; `digest` is of the input, and only needed with a key."""

    id: UUID
    tenant: int
    version: int
    input: str
    key: str | None = None
    digest: bytes | None = None
    run_at: datetime | None = None
    head_start: int = 0
    hook: str | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """`created` is False if the run was there already, by its key or by an earlier try."""

    id: UUID
    created: bool


Waiting = tuple[Start, asyncio.Future[Started]]


class Starter:
    """Groups the starts of one process. Each of its links carries one batch at a time."""

    def __init__(self, database: Database, links: int = 2) -> None:
        self._waiting: list[Waiting] = []
        self._links = [Link(database) for _ in range(links)]
        self._idle = list(self._links)
        self._sending: set[asyncio.Task[None]] = set()
        self._teller = Teller(database)

    async def start(self, start: Start) -> Started:
        """Returns after the commit. Raises Conflict if the key belongs to another input."""
        (started,) = await self.start_many([start])
        return started

    async def start_many(self, starts: Sequence[Start]) -> list[Started]:
        """The same for many, in their order; what one of them raises is raised after all are answered."""
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Started]] = [loop.create_future() for _ in starts]
        self._waiting.extend(zip(starts, answers, strict=True))
        for _ in self._links:
            self._send()
        if answers:
            await asyncio.wait(answers)
        return [answer.result() for answer in answers]

    def tell_of_work(self) -> None:
        """Something else has made work, or room for it."""
        self._teller.tell()

    async def close(self) -> None:
        while self._sending:
            await asyncio.gather(*self._sending)
        await self._teller.close()
        for link in self._links:
            await link.close()

    def _send(self) -> None:
        if self._waiting and self._idle:
            task = asyncio.ensure_future(self._send_batch(self._idle.pop()))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_batch(self, link: Link) -> None:
        await asyncio.sleep(0)  # what starts in this turn of the loop travels together
        batch, self._waiting = self._waiting[:LARGEST_BATCH], self._waiting[LARGEST_BATCH:]
        try:
            if batch:
                await _start_all(link, batch)
        finally:
            self._idle.append(link)
        self._teller.tell()
        self._send()


async def _start_all(link: Link, batch: list[Waiting]) -> None:
    """Answer every caller. One whose start the database cannot hold fails alone."""
    try:
        _answer(batch, await _committed(link, [start for start, _ in batch]))
    except Exception as error:  # noqa: BLE001  (each caller gets it)
        if not isinstance(error, DatabaseUnavailable) and len(batch) > 1:
            for one in batch:
                await _start_all(link, [one])
            return
        for _, answer in batch:
            if not answer.done():
                answer.set_exception(error)


async def _committed(link: Link, starts: Sequence[Start]) -> list[Row]:
    columns: list[list[Any]] = [
        [start.id for start in starts],
        [start.tenant for start in starts],
        [start.version for start in starts],
        [start.input for start in starts],
        [start.key for start in starts],
        [start.digest for start in starts],
        [start.run_at for start in starts],
        [start.head_start for start in starts],
        [start.hook for start in starts],
    ]
    patience = PATIENCE
    for wait in backoff(tries=8):
        try:
            return await link.fetch(_SQL["start_runs"], columns, patience)
        except Exception as error:
            # A start that was committed and whose answer was lost is found by its id when it is sent again.
            if not is_cut(error) and not is_passing(error):
                raise
            patience *= 1 + isinstance(error, TimeoutError)
            if wait is None:
                raise DatabaseUnavailable(
                    f"the database does not answer; nothing is known to be started: {error}"
                ) from error
            await asyncio.sleep(wait)
    raise AssertionError("unreachable")


def _answer(batch: list[Waiting], rows: list[Row]) -> None:
    for (start, answer), (started, created, same_input) in zip(batch, rows, strict=True):
        if answer.done():
            continue
        if same_input:
            answer.set_result(Started(started, created))
        else:
            answer.set_exception(
                Conflict(f"the key {start.key!r} belongs to run {started}, which was started with another input")
            )
