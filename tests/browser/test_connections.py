"""The page of connections in a real browser: a secret is typed once, and is never in a page again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

from retoma.store.database import Database
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database

CANARY = "CANARY-1c7d55ab"


@pytest.fixture
async def screen(database: Database) -> AsyncIterator[Screen]:
    await empty_database(database)
    async with open_screen(database) as made:
        yield made
        assert made.complaints == []


async def test_a_connection_is_entered_tested_replaced_and_deleted(screen: Screen) -> None:
    page = await screen.open("/connections")
    await page.get_by_role("link", name="Studio").click()
    await page.get_by_label("API key").fill(f"wrong-{CANARY}")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("The connection is saved")).to_be_visible()
    assert CANARY not in await page.content()
    await page.get_by_role("button", name="Test Studio").click()
    await expect(page.get_by_role("alert")).to_contain_text("it does not work.")
    await page.get_by_role("link", name="Replace Studio").click()
    secret = page.get_by_label("API key")
    assert await secret.get_attribute("type") == "password"
    await expect(secret).to_have_value("")
    await secret.fill(CANARY)
    await page.get_by_role("button", name="Save").click()
    await page.get_by_role("button", name="Test Studio").click()
    await expect(page.get_by_role("status").filter(has_text="it works.")).to_be_visible()
    assert CANARY not in await page.content()
    await page.get_by_role("button", name="Delete Studio").click()
    await expect(page.get_by_text("No connections")).to_be_visible()


async def test_the_page_fits_a_phone_and_speaks_portuguese(screen: Screen) -> None:
    await screen.sandbox.client.connections.set("studio", {"api_key": CANARY, "voice": "x" * 300}, tenant="t" * 200)
    page = await screen.open("/connections", width=390, language="pt-BR")
    await expect(page.get_by_role("heading", name="Conexões", exact=True)).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
