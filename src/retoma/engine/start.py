"""Starting runs: many concurrent starts share one transaction, and each is answered after its commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from retoma.errors import DatabaseUnavailable, KeyReused
from retoma.store.database import PATIENCE, Database, Link, Row, backoff, is_cut, is_passing, is_there
from retoma.store.notify import Teller
from retoma.store.statements import statements

_SQL = statements("calls")
LARGEST_BATCH = 1_000
SECONDS_BETWEEN_TELLS = 0.005


class Start(NamedTuple):
    """One run to be started, as `start_runs` takes it.

    `input` and `hook` are JSON; `digest` is of the input, and only needed with a key.
    """

    id: UUID
    tenant: int
    version: int
    input: str
    key: str | None = None
    digest: bytes | None = None
    run_at: datetime | None = None
    head_start: int = 0
    hook: str | None = None
    resumes: int | None = None
    retries: int | None = None
    deadline: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """`created` is False if the run was there already, by its key or by an earlier try."""

    id: UUID
    created: bool


@dataclass(slots=True)
class Waiting:
    """What one caller starts; it is answered as a whole."""

    starts: Sequence[Start]
    answer: asyncio.Future[list[Started]]


class Starter:
    """Groups the starts of one process. Each of its links carries one batch at a time."""

    def __init__(self, database: Database, links: int = 2) -> None:
        self._waiting: deque[Waiting] = deque()
        self._links = [Link(database) for _ in range(links)]
        self._idle = list(self._links)
        self._sending: set[asyncio.Task[None]] = set()
        self._teller = Teller(database, at_most_every=SECONDS_BETWEEN_TELLS)

    async def start(self, start: Start) -> Started:
        """Returns after the commit. Raises KeyReused if the key belongs to another input."""
        (started,) = await self._answer_to([start])
        return started

    async def start_many(self, starts: Iterable[Start]) -> list[Started]:
        """The same for many, in their order; what one of them raises is raised after all are answered."""
        batches, left = [], iter(starts)
        while batch := list(islice(left, LARGEST_BATCH)):
            batches.append(self._answer_to(batch))
            await asyncio.sleep(0)  # it is on its way while the next is made
        answers = await asyncio.gather(*batches, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [started for answer in answers if not isinstance(answer, BaseException) for started in answer]

    def tell_of_work(self) -> None:
        """Something else has made work, or room for it."""
        self._teller.tell()

    async def close(self) -> None:
        while self._sending:
            await asyncio.gather(*self._sending)
        await self._teller.close()
        for link in self._links:
            await link.close()

    def _answer_to(self, starts: Sequence[Start]) -> asyncio.Future[list[Started]]:
        waiting = Waiting(starts, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._send()
        return waiting.answer

    def _send(self) -> None:
        if self._waiting and self._idle:
            task = asyncio.ensure_future(self._send_batch(self._idle.pop()))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_batch(self, link: Link) -> None:
        await asyncio.sleep(0)  # what starts in this turn of the loop travels together
        batch = self._batch()
        try:
            if batch:
                # After a quiet time the workers are told by the start itself, which saves a round trip.
                told = self._teller.is_quiet()
                await _start_all(link, batch, tell=told)
                if not told:
                    self._teller.tell()
        finally:
            self._idle.append(link)
        self._send()

    def _batch(self) -> list[Waiting]:
        batch: list[Waiting] = []
        room = LARGEST_BATCH
        while self._waiting and len(self._waiting[0].starts) <= room:
            room -= len(self._waiting[0].starts)
            batch.append(self._waiting.popleft())
        return batch


async def _start_all(link: Link, batch: list[Waiting], *, tell: bool) -> None:
    """Answer every caller. One whose start the database cannot hold fails alone."""
    try:
        starts = [start for waiting in batch for start in waiting.starts]
        _answer(batch, await _committed(link, starts, tell=tell))
    except Exception as error:  # noqa: BLE001  (each caller gets it)
        if not isinstance(error, DatabaseUnavailable) and len(batch) > 1:
            for one in batch:
                await _start_all(link, [one], tell=tell)
            return
        for waiting in batch:
            if not waiting.answer.done():
                waiting.answer.set_exception(error)


async def _committed(link: Link, starts: Sequence[Start], *, tell: bool) -> list[Row]:
    columns = [_without_nulls_alone(column) for column in zip(*starts, strict=True)]
    patience = PATIENCE
    for wait in backoff(tries=8):
        try:
            return await link.fetch(_SQL["start_runs"], [*columns, tell], patience)
        except Exception as error:
            # A start that was committed and whose answer was lost is found by its id when it is sent again.
            # Or its first try is just being committed.
            if not is_cut(error) and not is_passing(error) and not is_there(error):
                raise
            patience *= 1 + isinstance(error, TimeoutError)
            if wait is None:
                raise DatabaseUnavailable(
                    f"the database does not answer; nothing is known to be started: {error}"
                ) from error
            await asyncio.sleep(wait)
    raise AssertionError("unreachable")


def _without_nulls_alone(column: tuple[Any, ...]) -> tuple[Any, ...]:
    """Most starts give few of the columns. `unnest` makes nulls of what is not there, and nobody need encode them."""
    return () if column[0] is None and column.count(None) == len(column) else column


def _answer(batch: list[Waiting], rows: list[Row]) -> None:
    at = 0
    for waiting in batch:
        mine = rows[at : at + len(waiting.starts)]
        at += len(mine)
        if waiting.answer.done():  # its caller has gone
            continue
        try:
            waiting.answer.set_result([_started(start, row) for start, row in zip(waiting.starts, mine, strict=True)])
        except KeyReused as error:
            waiting.answer.set_exception(error)


def _started(start: Start, row: Row) -> Started:
    started, created, same_input = row
    if not same_input:
        raise KeyReused(f"the key {start.key!r} belongs to run {started}, which was started with another input")
    return Started(started, created)
