"""What happens while `retoma dev` runs: what the application has to show, and reviews when they open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

from retoma.app import Demo
from retoma.cli.demo.board import Board
from retoma.cli.links import Links
from retoma.client import Client
from retoma.engine.loops import beside
from retoma.errors import RetomaError
from retoma.records import Review
from retoma.terminal import clean
from retoma.texts import language, text

SECONDS_BETWEEN_LOOKS = 0.5
MOST_ANNOUNCED = 5
PAGE = 1_000


@asynccontextmanager
async def showing(demo: Demo, client: Client, links: Links, board: Board) -> AsyncIterator[None]:
    """Start it and say where it is; until this ends, say what becomes of it."""
    said = demo(client, links.address, language())
    board.say("")
    for line in (await anext(said)).splitlines():
        board.say(links.add_token(clean(line)))
    board.say("")
    async with beside(_tell_on(said, links, board)):
        yield


@asynccontextmanager
async def telling(client: Client, links: Links, board: Board) -> AsyncIterator[None]:
    """Until this ends, say of every review where it is when it opens."""
    async with beside(_tell_of_reviews(client, links, board)):
        yield


async def _tell_on(said: AsyncIterator[str], links: Links, board: Board) -> None:
    with suppress(RetomaError):
        async for sentence in said:
            board.tell(links.add_token(clean(sentence)), style="bold green")


async def _tell_of_reviews(client: Client, links: Links, board: Board) -> None:
    last = await _count_open(client, links, board)
    told: set[UUID] = set()
    while True:
        with suppress(RetomaError):  # a database that restarts is no reason to stop looking
            for review in await client.reviews(after=last):
                if review.id not in told:
                    asked = await _asked(client, review, f"{links.address}/reviews/{review.id}")
                    board.tell(links.add_token(asked), style="bold green")
                    told.add(review.id)
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)


async def _count_open(client: Client, links: Links, board: Board) -> Review | None:
    """Say how many are open, if they are many. Return the newest of them: those after it are announced one by one."""
    count, last = 0, None
    while page := await client.reviews(after=last, limit=PAGE):
        count, last = count + len(page), page[-1]
    if count <= MOST_ANNOUNCED:
        return None
    open_reviews = text("reviews open", count=count, address=f"{links.address}/reviews")
    board.tell(links.add_token(open_reviews), style="bold green")
    return last


async def _asked(client: Client, review: Review, address: str) -> str:
    about = clean((await client.show(review.run)).about)
    of = text("review of", about=about) if about else ""
    return text("review", step=clean(review.step), of=of, address=address)
