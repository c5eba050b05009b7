"""Announce events while `retoma dev` runs: messages of the application's demo, and opened reviews."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from uuid import UUID

from retoma.app import App
from retoma.cli.demo.board import Board
from retoma.cli.dev_links import DevLinks
from retoma.cli.messages import get_language, gettext
from retoma.client import Client
from retoma.engine.background_loops import run_in_background
from retoma.errors import RetomaError, describe_error
from retoma.records import Review
from retoma.terminal import escape_text
from retoma.translations import CATALOGUES, Translator

POLL_SECONDS = 0.5
CLOSE_SECONDS = 1.0  # for a demo to end
MAX_ANNOUNCED = 5
PAGE_SIZE = 1_000


@asynccontextmanager
async def show_demos(app: App, client: Client, links: DevLinks, board: Board) -> AsyncIterator[None]:
    """Start the demo of each application and print its introduction, then print all messages while the block runs.

    If there are several, the title of the application precedes what its demo says.
    """
    demos = [each for each in app.applications if each.demo is not None]
    tasks: list[asyncio.Task[None]] = []
    for each in demos:
        title = _translate(each, each.title) if len(demos) > 1 else ""
        assert each.demo is not None
        messages = each.demo(client.scope_to(each), links.address, get_language())
        if await _print_introduction(messages, links, board, title):
            tasks.append(asyncio.create_task(_print_messages(messages, links, board, title)))
    board.print_line("")
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        if tasks:  # a demo may ignore its cancellation
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)


def announce_reviews(client: Client, links: DevLinks, board: Board) -> AbstractAsyncContextManager[None]:
    """Print a link to every review that opens while the block runs."""
    return run_in_background(_announce_open_reviews(client, links, board))


def _translate(application: App, text: str) -> str:
    folders = [CATALOGUES] if application.locale is None else [application.locale, CATALOGUES]
    return escape_text(Translator(get_language(), folders).gettext(text))


async def _print_introduction(messages: AsyncIterator[str], links: DevLinks, board: Board, title: str) -> bool:
    """Return False if the demo failed, which must not stop the others."""
    try:
        introduction = await anext(messages)
    except Exception as error:  # noqa: BLE001  (application code, without which the server still works)
        _report_failure(error, board)
        return False
    board.print_line("")
    if title:
        board.print_line(title, style="bold")
    for line in introduction.splitlines():
        board.print_line(links.add_token(escape_text(line)))
    return True


async def _print_messages(messages: AsyncIterator[str], links: DevLinks, board: Board, title: str) -> None:
    try:
        async for message in messages:
            line = links.add_token(escape_text(message))
            board.print_timed(f"{title}: {line}" if title else line, style="bold green")
    except Exception as error:  # noqa: BLE001  (as above)
        _report_failure(error, board)


def _report_failure(error: Exception, board: Board) -> None:
    board.print_line(gettext("the demo failed: %(error)s", error=escape_text(describe_error(error))), style="yellow")


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
    owner = client.app.find_owner(review.pipeline) if client.app else None
    step = _translate(owner, owner.labels.get(review.step, review.step)) if owner else escape_text(review.step)
    if about:
        return gettext(
            "%(step)s of “%(about)s” is waiting for you: %(address)s", step=step, about=about, address=address
        )
    return gettext("%(step)s is waiting for you: %(address)s", step=step, address=address)
