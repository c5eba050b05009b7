"""Starting runs: concurrent starts share one transaction, and each returns after its commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from retoma.errors import DatabaseUnavailable, KeyReused
from retoma.store.database import (
    CALL_TIMEOUT,
    Database,
    DedicatedConnection,
    Row,
    backoff,
    is_connection_lost,
    is_duplicate,
    is_transient,
)
from retoma.store.notify import WorkerNotifier
from retoma.store.statements import statements

Start = TypeVar("Start", bound=tuple[Any, ...])
Started = TypeVar("Started")
LINKS = 2
MAX_BATCH_SIZE = 1_000
SECONDS_BETWEEN_NOTIFICATIONS = 0.005


class StartRequest(NamedTuple):
    """One run to start, with the arguments of the SQL function `start_runs`.

    `input` and `webhook` are JSON. `digest` is that of the input, and only needed with a key.
    """

    id: UUID
    tenant: int
    version: int
    input: str
    key: str | None = None
    digest: bytes | None = None
    run_at: datetime | None = None
    head_start: int = 0
    webhook: str | None = None
    resumes: int | None = None
    retries: int | None = None
    deadline: timedelta | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run. `created` is False if it already existed, by its key or from a retried call."""

    id: UUID
    created: bool


@dataclass(slots=True)
class PendingStarts(Generic[Start, Started]):
    """The starts of one caller, answered together."""

    starts: Sequence[Start]
    answer: asyncio.Future[list[Started]]


class StartBatcher(Generic[Start, Started]):
    """Batches the starts of one process. Each of its connections carries one batch at a time.

    The fields of a start are the arguments of `statement`, which takes an array of each and returns a row for each
    start. `parse` returns the answer that a row is, or raises an error for its caller.
    """

    def __init__(self, database: Database, statement: str, parse: Callable[[Start, Row], Started]) -> None:
        self._statement = statement
        self._parse = parse
        self._pending: deque[PendingStarts[Start, Started]] = deque()
        self._links = [DedicatedConnection(database) for _ in range(LINKS)]
        self._idle = list(self._links)
        self._sending: set[asyncio.Task[None]] = set()
        self._notifier = WorkerNotifier(database, at_most_every=SECONDS_BETWEEN_NOTIFICATIONS)

    async def start(self, start: Start) -> Started:
        """Start a run, and return after the commit."""
        (started,) = await self._enqueue([start])
        return started

    async def start_many(self, starts: Iterable[Start]) -> list[Started]:
        """Start many runs, and return them in order. If one fails, raise its error once all are answered."""
        answers, left = [], iter(starts)
        while batch := list(islice(left, MAX_BATCH_SIZE)):
            answers.append(self._enqueue(batch))
            await asyncio.sleep(0)  # send it while the next batch is built
        await asyncio.gather(*answers, return_exceptions=True)
        return [started for answer in answers for started in answer.result()]

    def notify_workers(self) -> None:
        """Notify workers that something else has created work, or room for it."""
        self._notifier.notify()

    async def close(self) -> None:
        while self._sending:
            await asyncio.gather(*self._sending)
        await self._notifier.close()
        for link in self._links:
            await link.close()

    def _enqueue(self, starts: Sequence[Start]) -> asyncio.Future[list[Started]]:
        waiting = PendingStarts[Start, Started](starts, asyncio.get_running_loop().create_future())
        self._pending.append(waiting)
        self._send_pending()
        return waiting.answer

    def _send_pending(self) -> None:
        if self._pending and self._idle:
            task = asyncio.ensure_future(self._send_batch(self._idle.pop()))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_batch(self, link: DedicatedConnection) -> None:
        await asyncio.sleep(0)  # starts of the same iteration of the event loop share a batch
        batch = self._take_batch()
        try:
            if batch:
                # After a quiet time the start itself notifies the workers, which saves a round trip.
                was_quiet = self._notifier.record_new_work()
                await self._start_all(link, batch, notify=was_quiet)
                if not was_quiet:
                    self._notifier.notify()
        finally:
            self._idle.append(link)
        self._send_pending()

    def _take_batch(self) -> list[PendingStarts[Start, Started]]:
        batch: list[PendingStarts[Start, Started]] = []
        room = MAX_BATCH_SIZE
        while self._pending and len(self._pending[0].starts) <= room:
            room -= len(self._pending[0].starts)
            batch.append(self._pending.popleft())
        return batch

    async def _start_all(
        self, link: DedicatedConnection, batch: list[PendingStarts[Start, Started]], *, notify: bool
    ) -> None:
        """Answer every caller. If the database rejects a start, only its caller gets the error."""
        try:
            starts = [start for waiting in batch for start in waiting.starts]
            self._answer_callers(batch, await _commit(link, self._statement, starts, notify=notify))
        except Exception as error:  # noqa: BLE001  (each caller gets it)
            if not isinstance(error, DatabaseUnavailable) and len(batch) > 1:
                for one in batch:
                    await self._start_all(link, [one], notify=notify)
                return
            for waiting in batch:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)

    def _answer_callers(self, batch: list[PendingStarts[Start, Started]], rows: list[Row]) -> None:
        at = 0
        for waiting in batch:
            mine = rows[at : at + len(waiting.starts)]
            at += len(mine)
            if waiting.answer.done():  # its caller was cancelled
                continue
            try:
                waiting.answer.set_result(
                    [self._parse(start, row) for start, row in zip(waiting.starts, mine, strict=True)]
                )
            except KeyReused as error:
                waiting.answer.set_exception(error)


async def start_alone(database: Database, starts: Sequence[StartRequest]) -> list[StartedRun]:
    """Start these runs in one transaction of their own, which also writes what the database is `recording`."""
    columns = dict(zip(StartRequest._fields, zip(*starts, strict=True), strict=True))
    for wait in backoff(tries=8):
        try:
            rows = await database.fetch(statements("engine_calls")["start_runs"], **columns, notify=True)
            return [_parse_started(start, row) for start, row in zip(starts, rows, strict=True)]
        except Exception as error:
            # A call whose answer was lost is still being committed.
            if not is_duplicate(error) or wait is None:
                raise
            await asyncio.sleep(wait)
    raise AssertionError("unreachable")


class RunStarter(StartBatcher[StartRequest, StartedRun]):
    """Starts runs. Raises KeyReused if a key was used with another input."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, "start_runs", _parse_started)


async def _commit(
    link: DedicatedConnection, statement: str, starts: Sequence[tuple[Any, ...]], *, notify: bool
) -> list[Row]:
    arguments = [*(_drop_all_null(column) for column in zip(*starts, strict=True)), notify]
    patience = CALL_TIMEOUT
    for wait in backoff(tries=8):
        try:
            return await link.call("engine_calls", statement, arguments, patience)
        except Exception as error:
            # If a start was committed but its answer lost, the retry finds the run by its id. A duplicate means that
            # the first call is still being committed.
            if not is_connection_lost(error) and not is_transient(error) and not is_duplicate(error):
                raise
            patience *= 1 + isinstance(error, TimeoutError)
            if wait is None:
                raise DatabaseUnavailable(
                    f"the database is unreachable, and it is unknown whether the runs were started: {error}"
                ) from error
            await asyncio.sleep(wait)
    raise AssertionError("unreachable")


def _drop_all_null(column: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an empty column if all its values are null: `unnest` fills in nulls, and they need no encoding."""
    return () if column[0] is None and column.count(None) == len(column) else column


def _parse_started(start: StartRequest, row: Row) -> StartedRun:
    started, created, same_input = row
    if not same_input:
        raise KeyReused(f"the key {start.key!r} belongs to run {started}, which was started with another input")
    return StartedRun(started, created)
