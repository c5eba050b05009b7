"""Call application code so that nothing it raises can end the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from retoma.errors import describe_error, make_readable

Answer = TypeVar("Answer")
SECONDS_TO_CLEAN_UP = 1.0


async def call_application(call: Callable[[], Awaitable[Answer]], timeout: float) -> Answer:
    """Return the result of application code. Whatever that code raises arrives here as an `Exception`.

    If it raises `CancelledError`, the caller is not cancelled, and a `SystemExit` does not end the process. After
    `timeout` seconds, cancel it and raise TimeoutError, even if it ignores the cancellation.
    """
    task = asyncio.ensure_future(_convert_errors(call))
    task.add_done_callback(_consume_error)
    try:
        await asyncio.wait([task], timeout=timeout)
    except asyncio.CancelledError:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task], timeout=SECONDS_TO_CLEAN_UP)
        raise
    if not task.done():
        task.cancel()
        raise TimeoutError(f"no answer within {timeout:g} s")
    if task.cancelled():  # not by us
        raise RuntimeError("it cancelled its own task")
    return task.result()


async def _convert_errors(call: Callable[[], Awaitable[Answer]]) -> Answer:
    try:
        return await call()
    except BaseException as error:  # noqa: BLE001  (a CancelledError may be its own: `task.cancelled()` tells)
        failure = _to_exception(error)
    raise failure


def _to_exception(error: BaseException) -> Exception:
    readable = make_readable(error)
    if isinstance(readable, Exception):
        return readable
    converted = RuntimeError(f"the application raised {describe_error(error)}")
    converted.__cause__ = error
    return converted


def _consume_error(task: asyncio.Task[Answer]) -> None:
    """Keep asyncio from logging the error of a call that timed out."""
    if not task.cancelled():
        task.exception()
