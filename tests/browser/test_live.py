"""Pages that update live over one stream each and warn if the stream is silent."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Page, expect

from retoma.server.streams import Streams
from retoma.store.database import Database
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database
from tests.server.people import ADMINISTRATOR, PASSWORD, ensure_administrator
from tests.wait_timeout import WAIT_TIMEOUT


async def streams(screen: Screen, wanted: int) -> None:
    """Wait until there are so many watchers; those who left are noticed when something is sent to them."""
    live: Streams = screen.server.state.live
    async with asyncio.timeout(WAIT_TIMEOUT):
        while live.count != wanted:
            for stream in live.list_streams():
                stream.put(b":\n\n")  # which a page does not hear
            await asyncio.sleep(0.02)


async def hide(page: Page, *, hidden: bool) -> None:
    await page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        "document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


async def test_a_logged_in_user_sees_changes_without_reloading(database: Database) -> None:
    await empty_database(database)
    async with open_screen(database, development=False) as screen:
        run = await screen.sandbox.client.start("film", {"topic": "bad"})
        await ensure_administrator(screen.sandbox.client)
        page = await screen.open("/login")
        await page.get_by_label("E-mail address").fill(ADMINISTRATOR)
        await page.get_by_label("Password").fill(PASSWORD)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Home")).to_be_visible()
        await page.goto(f"{screen.address}/runs/{run.id}")
        await streams(screen, 1)
        await screen.sandbox.work()
        await expect(page.locator("#head .badge")).to_have_text("Completed with errors")
        await streams(screen, 0)
        assert screen.complaints == []


async def test_a_page_has_one_stream_and_none_while_it_is_hidden(screen: Screen) -> None:
    page = await screen.open("/")
    for path in ("/runs", "/stuck", "/"):
        await page.goto(f"{screen.address}{path}")
    await streams(screen, 1)
    await hide(page, hidden=True)
    await streams(screen, 0)
    await hide(page, hidden=False)
    await streams(screen, 1)


@pytest.mark.parametrize(
    ("language", "word", "silent"),
    [("en", "Live", "No events since"), ("pt-BR", "Ao vivo", "Sem eventos desde")],
)
async def test_a_minute_without_a_ping_is_shown_until_one_arrives(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, language: str, word: str, silent: str
) -> None:
    monkeypatch.setattr("retoma.server.streams.SECONDS_BETWEEN_SLOTS", 3600.0)  # no ping but the test's
    page = await screen.blank(locale=language)
    await page.clock.install()
    await page.goto(f"{screen.address}/runs")
    dot = page.locator("[data-live-dot]")
    await streams(screen, 1)
    await expect(dot).to_have_text(word)
    await page.clock.fast_forward(61_000)
    await expect(dot).to_contain_text(silent)
    await streams(screen, 1)
    live: Streams = screen.server.state.live
    await live.send_pings(live.list_streams())
    await expect(dot).to_have_text(word)
