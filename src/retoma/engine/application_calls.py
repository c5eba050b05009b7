"""Call application code so that nothing it raises can end the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from retoma.errors import describe_error

Answer = TypeVar("Answer")
SECONDS_TO_CLEAN_UP = 1.0


async def call_application(call: Callable[[], Awaitable[Answer]], timeout: float) -> Answer:
    """Return the result of application code. Whatever that code raises arrives here as an `Exception`.

    If it raises `CancelledError`, the caller is not cancelled, and a `SystemExit` does not end the process. After
    `timeout` seconds, cancel it and raise TimeoutError, even if it ignores the cancellation.
    """
    task = asyncio.ensure_future(_convert_base_exceptions(call))
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
    return task.result()


async def _convert_base_exceptions(call: Callable[[], Awaitable[Answer]]) -> Answer:
    try:
        return await call()
    except Exception:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise RuntimeError(f"the application raised {describe_error(error)}") from error


def _consume_error(task: asyncio.Task[Answer]) -> None:
    """Keep asyncio from logging the error of a call that timed out."""
    if not task.cancelled():
        task.exception()
