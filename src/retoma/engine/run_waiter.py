"""Wait for runs to end. One poll serves all waiting callers of this process."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from retoma.states import RunState
from retoma.store import event_stream
from retoma.store.database import Database

MIN_POLL_SECONDS = 0.01
MAX_POLL_SECONDS = 0.5


class RunWaiter:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[UUID, set[asyncio.Future[RunState]]] = {}
        self._poll_every = MIN_POLL_SECONDS
        self._polling: asyncio.Task[None] | None = None

    async def wait_until_over(self, run: UUID, timeout: timedelta | None) -> RunState:
        answer: asyncio.Future[RunState] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run, set()).add(answer)
        self._poll_every = MIN_POLL_SECONDS
        if self._polling is None or self._polling.done():
            self._polling = asyncio.ensure_future(self._poll_until_over())
        try:
            async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
                return await answer
        finally:
            self._forget(run, answer)

    async def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            with suppress(asyncio.CancelledError):
                await self._polling
        for answers in self._waiting.values():
            for answer in answers:
                answer.cancel()

    async def _poll_until_over(self) -> None:
        while self._waiting:
            try:
                ended = await event_stream.get_run_states(self._database, self._waiting, only_ended=True)
            except Exception as error:  # noqa: BLE001  (each waiting caller gets it)
                self._fail_all(error)
                return
            for run, state in ended.items():
                for answer in _list_pending(self._waiting.pop(run, set())):
                    answer.set_result(state)
            self._poll_every = MIN_POLL_SECONDS if ended else min(self._poll_every * 1.3, MAX_POLL_SECONDS)
            await asyncio.sleep(self._poll_every)

    def _fail_all(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for answers in waiting.values():
            for answer in _list_pending(answers):
                answer.set_exception(error)

    def _forget(self, run: UUID, answer: asyncio.Future[RunState]) -> None:
        """Remove a waiting caller. Stop polling a run without callers."""
        answers = self._waiting.get(run, set())
        answers.discard(answer)
        if not answers:
            self._waiting.pop(run, None)


def _list_pending(answers: set[asyncio.Future[RunState]]) -> list[asyncio.Future[RunState]]:
    """Return the callers that have not just timed out."""
    return [answer for answer in answers if not answer.done()]
