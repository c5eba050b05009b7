"""Threads for `def` steps. If a step exceeds its timeout, its thread is abandoned and replaced: exits never wait."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any

from retoma.errors import describe_error, make_readable
from retoma.logs import CURRENT_ATTEMPT, Attempt
from retoma.tracebacks import release_frames


class ThreadPool:
    """Runs functions in up to `size` daemon threads. Use from one event loop."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._started = 0
        self._busy = 0
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._finished: deque[_Call] = deque()
        self._waking = False  # the loop was already asked to deliver results
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attempts: dict[int, Attempt | None] = {}  # that each busy thread runs

    async def call(self, function: Callable[[], Any]) -> Any:
        """Return the function's result. If this is cancelled, abandon its thread and replace it."""
        self._loop = asyncio.get_running_loop()
        call = _Call(partial(copy_context().run, function), self._loop.create_future())
        self._busy += 1
        self._start_thread()
        self._calls.put(call)
        try:
            return await call.answer
        except asyncio.CancelledError:
            call.abandoned = True
            self._started -= 1
            raise
        finally:
            self._busy -= 1

    def find_thread(self, attempt: Attempt) -> int | None:
        """Return the thread that runs this attempt, or None if none does yet. For other threads."""
        return next((thread for thread, each in tuple(self._attempts.items()) if each is attempt), None)

    def close(self) -> None:
        for _ in range(self._started):
            self._calls.put(None)

    def _start_thread(self) -> None:
        if self._started < min(self._size, self._busy):
            self._started += 1
            threading.Thread(target=self._run_calls, name="retoma-step", daemon=True).start()

    def _run_calls(self) -> None:
        thread = threading.get_ident()
        while (call := self._calls.get()) is not None:
            self._attempts[thread] = call.attempt
            call.run()
            del self._attempts[thread]
            if call.abandoned:
                return
            self._finished.append(call)
            del call  # free its data and result before the next call
            # Many may end at once: only one of them wakes the loop.
            if not self._waking and self._loop is not None and not self._loop.is_closed():
                self._waking = True
                self._loop.call_soon_threadsafe(self._deliver_results)

    def _deliver_results(self) -> None:
        self._waking = False  # before taking the first: a call that ends from now on wakes the loop again
        while self._finished:
            self._finished.popleft().deliver()


class _Call:
    __slots__ = ("abandoned", "answer", "attempt", "error", "function", "result")

    def __init__(self, function: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
        self.function = function
        self.answer = answer
        self.attempt = CURRENT_ATTEMPT.get()
        self.abandoned = False
        self.result: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.result = self.function()
        except BaseException as error:  # noqa: BLE001  (a step's SystemExit must not end the thread)
            self.error = _to_exception(error)

    def deliver(self) -> None:
        if self.answer.done():
            return
        if self.error is None:
            self.answer.set_result(self.result)
        else:
            self.answer.set_exception(self.error)


def _to_exception(error: BaseException) -> Exception:
    """Return an error that the event loop can deliver. Called in the step's thread: reading an error may run its code,
    which must not keep the results of other steps from being delivered."""
    readable = make_readable(error)
    if isinstance(readable, Exception) and not isinstance(readable, StopIteration):
        return readable
    described = RuntimeError(f"the step raised {describe_error(error)}")
    release_frames(error)
    return described
