"""Work that goes on beside other work: a loop that fails is started again, and the log says so."""

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
    """Run `loop`, and again a moment after it has failed, until cancelled."""
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
    """Return by its name how often each loop of this process has failed and was started again."""
    return dict(_restarts)


@asynccontextmanager
async def run_in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Let this go on until the block ends. If it failed before, that is raised then."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
