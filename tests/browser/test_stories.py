"""A story in a real browser: ordered, published, one scene rerun, and published as a new video."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import expect

from retoma.store.database import Database
from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.stories.application import make_app
from retoma_apps.stories.steps.writing.bundled import BundledStoryWriter
from tests.apps.stories.story_app import make_services
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database


@pytest.fixture
async def screen(database: Database, tmp_path: Path) -> AsyncIterator[Screen]:
    await empty_database(database)
    services = make_services(tmp_path, writer=BundledStoryWriter(), images=OfflineImages())
    async with open_screen(database, application=make_app(services)) as made:
        yield made
        assert made.complaints == []


async def test_a_story_is_published_rerun_and_published_as_a_new_video(screen: Screen) -> None:
    page = await screen.open("/storyboard/?new=1")
    await page.get_by_label("Topic").fill("How coffee is made")
    await page.get_by_label("Number of scenes").fill("2")
    await page.get_by_label("Translate to").fill("pt-BR")
    await page.locator("#order button.primary").click()
    await expect(page.locator("#head")).to_contain_text("Writing the script")
    await screen.sandbox.work(advance_clock=False)
    await expect(page.locator("#head")).to_contain_text("Ready for review")
    await page.locator("summary", has_text="Publish").click()
    await page.get_by_role("button", name="Yes, publish").click()
    await expect(page.get_by_role("status")).to_contain_text("is being uploaded")
    await screen.sandbox.work(advance_clock=False)
    await page.reload()
    first = await page.get_by_role("link", name="Watch").get_attribute("href")
    await page.locator("#scene-2 summary").click()
    await page.locator("#scene-2").get_by_role("button", name="Rerun now").click()
    await expect(page.get_by_role("status")).to_contain_text("is being rerun")
    await screen.sandbox.work(advance_clock=False)
    await page.reload()
    await page.locator("summary", has_text="Publish as a new video").click()
    await expect(page.locator(".confirm[open]")).to_contain_text(f"stays at {first}")
    await page.locator(".confirm[open]").get_by_role("button", name="Yes, publish").click()
    await screen.sandbox.work(advance_clock=False)
    await page.reload()
    await expect(page.locator("#facts")).to_contain_text("Earlier videos")
    assert await page.get_by_role("link", name="Watch").get_attribute("href") != first
    await page.get_by_role("link", name="Watch").click()
    await expect(page.locator("video")).to_have_js_property("error", None)
    await expect(page.locator("video track")).to_have_count(2)
