"""The end of `retoma worker`, `serve` and `dev`: application code that never ends does not keep the process alive.

A task may ignore its cancellation, and Python waits without a limit for such tasks and for threads. By the time that
this module is asked, everything is recorded, so the process may leave them behind.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from retoma.logs import get_logger

T = TypeVar("T")
log = get_logger(__name__)
CLOSE_TIMEOUT = 3.0  # seconds for what is left of the event loop
EXIT_TIMEOUT = 5.0  # seconds for threads and exit handlers after that
FLUSH_TIMEOUT = 1.0  # seconds for the last lines: the reader may have stopped reading

_must_leave = False  # something on the event loop never ends
_is_service = False  # this process has run an event loop that may run application code
_deadline: threading.Timer | None = None


def run(work: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Run this to its end, as `asyncio.run` does, and wait only a moment for anything else on its event loop."""
    global _is_service
    _is_service = True
    runner = asyncio.Runner(loop_factory=loop_factory)
    try:
        result = runner.run(work)
    except BaseException:
        _close(runner, code=1)
        raise
    _close(runner, code=0)
    return result


def on_stop_signal(stop: Callable[[int], None]) -> None:
    """At each SIGTERM and Ctrl-C, call `stop` with their number so far."""
    requests = itertools.count(1)

    def handle() -> None:
        stop(next(requests))

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, handle)


def limit_exit(seconds: float, code: int = 0) -> None:
    """End this process after so many seconds, unless it has ended before. Replaces the limit set before."""
    global _deadline
    _clear_limit()
    _deadline = threading.Timer(seconds, _leave_late, [code])
    _deadline.daemon = True
    _deadline.start()


def finish(code: int) -> None:
    """Call last of all: end a process at once if its event loop cannot, and soon if threads do not end."""
    if _must_leave:
        leave(code)
    if _is_service:
        limit_exit(EXIT_TIMEOUT, code)


def leave(code: int) -> NoReturn:
    """End this process without waiting for anything but its last lines."""
    flushing = threading.Thread(target=_flush, daemon=True)
    flushing.start()
    flushing.join(FLUSH_TIMEOUT)
    os._exit(code)


def _close(runner: asyncio.Runner, code: int) -> None:
    global _must_leave
    limit_exit(2 * CLOSE_TIMEOUT, code)  # a task may also block the event loop
    if runner.run(_end_all_tasks(CLOSE_TIMEOUT)):
        runner.close()
    else:
        _must_leave = True
    _clear_limit()


async def _end_all_tasks(timeout: float) -> bool:
    """Return whether everything on this event loop has ended: tasks, asynchronous generators and `to_thread` calls."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if not await _end_within(rest, deadline, "tasks"):
        return False
    generators = asyncio.ensure_future(loop.shutdown_asyncgens())
    if not await _end_within([generators], deadline, "asynchronous generators"):
        return False
    # Not to be cancelled: it would then block the event loop until the last thread has ended.
    threads = asyncio.ensure_future(loop.shutdown_default_executor())
    return await _end_within([threads], deadline, "threads of asyncio.to_thread")


async def _end_within(tasks: Collection[asyncio.Future[Any]], deadline: float, kind: str) -> bool:
    if not tasks:
        return True
    _, pending = await asyncio.wait(tasks, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
    if pending:
        log.warning(
            "exit_without_tasks",
            message=f"{kind} ignore their cancellation; the process exits without them",
            left=_describe(pending),
        )
    return not pending


def _describe(tasks: Collection[asyncio.Future[Any]]) -> list[str]:
    return sorted(
        str(getattr(task.get_coro(), "__qualname__", task)) for task in tasks if isinstance(task, asyncio.Task)
    )


def _leave_late(code: int) -> None:
    names = [thread.name for thread in threading.enumerate() if not thread.daemon]
    with suppress(Exception):
        log.warning(
            "exit_without_threads",
            message="application code does not end; the process exits without it",
            threads=names,
        )
    leave(code)


def _clear_limit() -> None:
    if _deadline is not None:
        _deadline.cancel()


def _flush() -> None:
    for stream in (*(handler.flush for handler in logging.getLogger().handlers), sys.stdout.flush, sys.stderr.flush):
        with suppress(Exception):
            stream()
