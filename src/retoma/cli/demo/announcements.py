"""What happens while `retoma dev` runs: what the application has to show, and reviews when they open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

from retoma.app import Demo
from retoma.cli.demo.board import Board
from retoma.cli.dev_links import DevLinks
from retoma.client import Client
from retoma.engine.background_loops import run_in_background
from retoma.errors import RetomaError
from retoma.records import Review
from retoma.terminal import escape_text
from retoma.texts import language, text

POLL_SECONDS = 0.5
MAX_ANNOUNCED = 5
PAGE_SIZE = 1_000


@asynccontextmanager
async def show_application_demo(demo: Demo, client: Client, links: DevLinks, board: Board) -> AsyncIterator[None]:
    """Start it and say where it is; until this ends, say what becomes of it."""
    said = demo(client, links.address, language())
    board.print_line("")
    for line in (await anext(said)).splitlines():
        board.print_line(links.add_token(escape_text(line)))
    board.print_line("")
    async with run_in_background(_print_messages(said, links, board)):
        yield


@asynccontextmanager
async def announce_reviews(client: Client, links: DevLinks, board: Board) -> AsyncIterator[None]:
    """Until this ends, say of every review where it is when it opens."""
    async with run_in_background(_announce_open_reviews(client, links, board)):
        yield


async def _print_messages(messages: AsyncIterator[str], links: DevLinks, board: Board) -> None:
    with suppress(RetomaError):
        async for sentence in messages:
            board.print_timed(links.add_token(escape_text(sentence)), style="bold green")


async def _announce_open_reviews(client: Client, links: DevLinks, board: Board) -> None:
    last = await _announce_count(client, links, board)
    told: set[UUID] = set()
    while True:
        with suppress(RetomaError):  # a database that restarts is no reason to stop looking
            for review in await client.reviews.list(after=last):
                if review.id not in told:
                    asked = await _describe_review(client, review, f"{links.address}/reviews/{review.id}")
                    board.print_timed(links.add_token(asked), style="bold green")
                    told.add(review.id)
        await asyncio.sleep(POLL_SECONDS)


async def _announce_count(client: Client, links: DevLinks, board: Board) -> Review | None:
    """Say how many are open, if they are many. Return the newest of them: those after it are announced one by one."""
    count, last = 0, None
    while page := await client.reviews.list(after=last, limit=PAGE_SIZE):
        count, last = count + len(page), page[-1]
    if count <= MAX_ANNOUNCED:
        return None
    open_reviews = text("reviews open", count=count, address=f"{links.address}/reviews")
    board.print_timed(links.add_token(open_reviews), style="bold green")
    return last


async def _describe_review(client: Client, review: Review, address: str) -> str:
    about = escape_text((await client.runs.get(review.run)).about)
    of = text("review of", about=about) if about else ""
    return text("review", step=escape_text(review.step), of=of, address=address)
