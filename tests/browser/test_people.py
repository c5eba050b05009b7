"""The pages about people in a real browser: by keyboard alone, and with hostile names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from retoma.records import Role
from retoma.store.database import Database
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database
from tests.server.pages.newsroom import make_application, start_until_review
from tests.server.pages.test_pages import EVERYTHING
from tests.server.people import ADMINISTRATOR, PASSWORD, ensure_administrator

MAX_TABS = 120


@pytest.fixture
async def screen(database: Database, tmp_path: Path) -> AsyncIterator[Screen]:
    await empty_database(database)
    async with open_screen(database, application=make_application(tmp_path), development=False) as made:
        await ensure_administrator(made.sandbox.client)
        yield made
        assert made.complaints == []


async def tab_to(page: Page, selector: str) -> None:
    """Move the focus there by Tab, as somebody without a mouse does."""
    for _ in range(MAX_TABS):
        if await page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"{MAX_TABS} times Tab do not lead to {selector}")


async def log_in(screen: Screen) -> Page:
    page = await screen.open("/login")
    await tab_to(page, "[name=email]")
    await page.keyboard.type(ADMINISTRATOR)
    await tab_to(page, "[name=password]")
    await page.keyboard.type(PASSWORD)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{screen.address}/")
    return page


async def test_a_review_is_decided_by_tab_and_enter_alone(screen: Screen) -> None:
    review = await start_until_review(screen.sandbox, topic="tea")
    page = await log_in(screen)
    await tab_to(page, "#nav a[href='/reviews']")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{screen.address}/reviews")
    await tab_to(page, "[data-do=send_back]")
    await page.keyboard.press("Enter")
    await expect(page.locator("#notes")).to_be_focused()
    await page.keyboard.type("shorter")
    await tab_to(page, "#sheet button[value=send_back]")
    await page.keyboard.press("Enter")
    await expect(page.locator("#toasts")).to_contain_text("Sent back: tea")
    assert (await screen.sandbox.client.reviews.get(review.id)).notes == "shorter"


async def test_a_person_is_invited_by_tab_and_enter_alone(screen: Screen) -> None:
    page = await log_in(screen)
    await tab_to(page, "#nav a[href='/people']")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{screen.address}/people")
    for field, text in (("#name", "Rui"), ("#email", "rui@example.com")):
        await tab_to(page, field)
        await page.keyboard.type(text)
    await tab_to(page, "form[action='/people'] button")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status")).to_contain_text("Send this link to Rui (rui@example.com)")


async def test_hostile_names_are_never_executed(screen: Screen) -> None:
    client = screen.sandbox.client
    hostile = EVERYTHING[:200]
    await client.start("article", {"topic": hostile}, tenant="channel")
    await client.people.create(hostile, "eve@example.com", role=Role.REVIEWER, tenant="channel")
    review = await start_until_review(screen.sandbox, topic=hostile)
    await client.reviews.assign(review.id, "eve@example.com", by=hostile)
    await client.reviews.claim(review.id, by=hostile)
    page = await log_in(screen)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for path in ("/people", "/audit", "/notifications", "/account", "/account/notifications", "/reviewers", "/reviews"):
        await page.goto(f"{screen.address}{path}")
        await expect(page.locator("main")).to_be_visible()
        assert await page.locator("main script:not([src]), main iframe, main img[src='x']").count() == 0, path
    assert dialogs == []
