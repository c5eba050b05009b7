"""The home page of a server with all applications, in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

import retoma_apps
from retoma.store.database import Database
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database


@pytest.fixture
async def screen(database: Database) -> AsyncIterator[Screen]:
    await empty_database(database)
    async with open_screen(database, application=retoma_apps.app) as made:
        await made.sandbox.client.start(
            "addaudio", {"video_url": "https://x.test/a.mp4", "audio_url": "https://x.test/b"}
        )
        yield made
        assert made.complaints == []


async def test_cards_and_navigation_lead_to_every_application(screen: Screen) -> None:
    page = await screen.open("/")
    for title, heading in (("Videos", "Videos"), ("Classifier", "Classifier")):
        await page.get_by_role("link", name=f"Open {title}").click()
        await expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
        await page.get_by_role("navigation", name="Main").first.get_by_role("link", name="Home").click()
        await expect(page.get_by_role("heading", name="Home")).to_be_visible()
        await page.get_by_role("navigation", name="Main").first.get_by_role("link", name=title).click()
        await expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
        await page.goto(f"{screen.address}/")
    card = page.get_by_role("article").filter(has=page.get_by_role("heading", name="GPU"))
    await card.get_by_role("link", name="Running").click()
    await expect(page).to_have_url(f"{screen.address}/runs?application=gpu&state=running")
    await expect(page.locator("#runs tbody tr")).to_have_count(1)
    await expect(page.get_by_label("Application")).to_have_value("gpu")


async def test_the_cards_follow_the_runs(screen: Screen) -> None:
    page = await screen.open("/", language="pt-BR")
    card = page.get_by_role("article").filter(has=page.get_by_role("heading", name="GPU"))
    await expect(card.locator("b").nth(1)).to_have_text("1")
    (run,) = await screen.sandbox.client.runs.list()
    await screen.sandbox.client.runs.cancel(run.id)
    await expect(card.locator("b").nth(1)).to_have_text("0")


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (820, "light"), (1280, "light"), (1440, "light")])
@pytest.mark.parametrize("language", ["en", "pt-BR"])
async def test_no_shared_page_is_wider_than_the_screen(screen: Screen, width: int, scheme: str, language: str) -> None:
    page = await screen.open("/", width, scheme, language)
    for path in ("/", "/reviews", "/runs?application=gpu", "/videos/", "/classificador/"):
        await page.goto(f"{screen.address}{path}")
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
        await expect(page.locator("#nav:visible, #tabs:visible")).to_have_count(1)
        if width >= 1280:
            assert await page.locator("#nav").evaluate("nav => nav.scrollWidth - nav.clientWidth") <= 0, path
