"""Announce events while `retoma dev` runs: messages of the application's demo, and opened reviews."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

from retoma.app import Demo
from retoma.cli.demo.board import Board
from retoma.cli.dev_links import DevLinks
from retoma.cli.messages import get_language, gettext
from retoma.client import Client
from retoma.engine.background_loops import run_in_background
from retoma.errors import RetomaError
from retoma.records import Review
from retoma.terminal import escape_text

POLL_SECONDS = 0.5
MAX_ANNOUNCED = 5
PAGE_SIZE = 1_000


@asynccontextmanager
async def show_application_demo(demo: Demo, client: Client, links: DevLinks, board: Board) -> AsyncIterator[None]:
    """Start the demo and print its introduction, then print its messages while the block runs."""
    messages = demo(client, links.address, get_language())
    board.print_line("")
    for line in (await anext(messages)).splitlines():
        board.print_line(links.add_token(escape_text(line)))
    board.print_line("")
    async with run_in_background(_print_messages(messages, links, board)):
        yield


@asynccontextmanager
async def announce_reviews(client: Client, links: DevLinks, board: Board) -> AsyncIterator[None]:
    """Print a link to every review that opens while the block runs."""
    async with run_in_background(_announce_open_reviews(client, links, board)):
        yield


async def _print_messages(messages: AsyncIterator[str], links: DevLinks, board: Board) -> None:
    with suppress(RetomaError):
        async for message in messages:
            board.print_timed(links.add_token(escape_text(message)), style="bold green")


async def _announce_open_reviews(client: Client, links: DevLinks, board: Board) -> None:
    last = await _announce_count(client, links, board)
    announced: set[UUID] = set()
    while True:
        with suppress(RetomaError):  # keep polling while the database restarts
            for review in await client.reviews.list(after=last):
                if review.id not in announced:
                    line = await _describe_review(client, review, f"{links.address}/reviews/{review.id}")
                    board.print_timed(links.add_token(line), style="bold green")
                    announced.add(review.id)
        await asyncio.sleep(POLL_SECONDS)


async def _announce_count(client: Client, links: DevLinks, board: Board) -> Review | None:
    """If many reviews are open, print their number and return the newest. Later ones are announced one by one."""
    count, last = 0, None
    while page := await client.reviews.list(after=last, limit=PAGE_SIZE):
        count, last = count + len(page), page[-1]
    if count <= MAX_ANNOUNCED:
        return None
    open_reviews = gettext(
        "%(count)s reviews wait for you: %(address)s", count=count, address=f"{links.address}/reviews"
    )
    board.print_timed(links.add_token(open_reviews), style="bold green")
    return last


async def _describe_review(client: Client, review: Review, address: str) -> str:
    about = escape_text(review.run_title or (await client.runs.get(review.run)).about)
    step = escape_text(review.step)
    if about:
        return gettext("%(step)s of “%(about)s” waits for you: %(address)s", step=step, about=about, address=address)
    return gettext("%(step)s waits for you: %(address)s", step=step, address=address)
