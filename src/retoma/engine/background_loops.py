"""Background loops, which are logged and restarted when they fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from retoma.logs import get_logger

log = get_logger(__name__)
SECONDS_BEFORE_RESTART = 1.0
_restarts: Counter[str] = Counter()


async def run_with_restarts(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Run `loop` until cancelled. If it fails or returns, restart it after a moment."""
    _restarts.setdefault(name, 0)
    while True:
        try:
            await loop()
        except Exception as error:
            _restarts[name] += 1
            log.error(
                "background_loop_failed",
                message="a background loop failed; restarting it",
                loop=name,
                error=error,
                exc_info=True,
            )
        await asyncio.sleep(SECONDS_BEFORE_RESTART)


def count_restarts() -> dict[str, int]:
    """Return how often each loop of this process has failed and was restarted, by name."""
    return dict(_restarts)


@asynccontextmanager
async def run_in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` until the block ends. If it failed earlier, raise its error then."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
