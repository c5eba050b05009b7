"""Loops that must not end: one that fails is started again, and the log says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from retoma.logs import get_logger

log = get_logger("retoma.loops")
SECONDS_BEFORE_AGAIN = 1.0


async def kept_going(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Run `loop`, and again a moment after it has failed, until cancelled."""
    while True:
        try:
            await loop()
        except Exception as error:
            log.error("a loop failed and is started again", loop=name, error=str(error), exc_info=True)
        await asyncio.sleep(SECONDS_BEFORE_AGAIN)
