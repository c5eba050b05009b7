"""What an application has to show: started once, and its reviews told of when they open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

from retoma.app import Demo
from retoma.cli.demo.board import Board
from retoma.client import Client
from retoma.errors import RetomaError
from retoma.terminal import clean
from retoma.texts import language, text

SECONDS_BETWEEN_LOOKS = 0.5


@asynccontextmanager
async def showing(demo: Demo, client: Client, address: str, board: Board) -> AsyncIterator[None]:
    """Start it and say where it is; until this ends, say of every review where it is when it opens."""
    board.say("")
    for line in (await demo(client, address, language())).splitlines():
        board.say(clean(line))
    board.say("")
    telling = asyncio.create_task(_tell_of_reviews(client, address, board))
    try:
        yield
    finally:
        telling.cancel()
        with suppress(asyncio.CancelledError):
            await telling


async def _tell_of_reviews(client: Client, address: str, board: Board) -> None:
    told: set[UUID] = set()
    while True:
        with suppress(RetomaError):  # a database that restarts is no reason to stop looking
            for review in await client.reviews():
                if review.id not in told:
                    told.add(review.id)
                    where = f"{address}/reviews/{review.id}"
                    board.tell(text("review", step=clean(review.step), address=where), style="bold green")
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
