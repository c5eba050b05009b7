"""How a review is read in a real browser: comments at moments, and what changed since they were written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from retoma.store.database import Database
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database
from tests.server.pages.newsroom import make_application, start_until_review, work_until_review


@pytest.fixture
async def newsroom(database: Database, tmp_path: Path) -> AsyncIterator[Screen]:
    await empty_database(database)
    async with open_screen(database, application=make_application(tmp_path)) as screen:
        yield screen
        assert screen.complaints == []


async def comment_at(page: Page, seconds: float, text: str, *, to: float | None = None) -> None:
    """Comment as a person does: at the moment where the recording is, by key."""
    await move_to(page, seconds)
    await page.locator("#review-title").click()
    if to is not None:
        await page.keyboard.press("i")
        await move_to(page, to)
        await page.keyboard.press("o")
    await page.keyboard.press("c")
    await page.keyboard.type(text)
    await page.keyboard.press("Control+Enter")


async def move_to(page: Page, seconds: float) -> None:
    await page.locator("audio").first.evaluate(
        """(audio, at) => new Promise((moved) => {
            const move = () => { audio.addEventListener("seeked", moved, { once: true }); audio.currentTime = at; };
            if (audio.readyState) move();
            else { audio.addEventListener("loadedmetadata", move, { once: true }); audio.load(); }
        })""",
        seconds,
    )


async def test_a_review_is_sent_back_with_two_comments_at_moments(newsroom: Screen) -> None:
    review = await start_until_review(newsroom.sandbox)
    page = await newsroom.open(f"/reviews/{review.id}")
    await comment_at(page, 1.0, "too loud")
    await comment_at(page, 0.0, "slower here", to=1.0)
    entries = page.locator("[data-list] li")
    await expect(entries).to_have_count(2)
    await expect(entries.first).to_contain_text("0:00\N{EN DASH}0:01")
    await expect(page.locator(".pin")).to_have_count(2)
    await expect(page.locator(".track .range")).to_have_count(1)
    await page.locator("#review-title").click()
    await page.keyboard.press("r")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(f"[data-pane=content][data-review='{review.id}'] #decide")).to_have_count(0)
    decided = await newsroom.sandbox.client.reviews.get(review.id)
    assert (decided.feedback or {})["comments"] == [
        {"text": "slower here", "at": 0.0, "to": 1.0},
        {"text": "too loud", "at": 1.0, "to": None},
    ]


async def test_comments_are_carried_to_the_next_revision_and_resolved_there(newsroom: Screen) -> None:
    review = await start_until_review(newsroom.sandbox)
    page = await newsroom.open(f"/reviews/{review.id}")
    await comment_at(page, 1.0, "too loud")
    await page.locator("[data-do=send_back]").click()
    await page.locator("#notes").fill("Mais curto")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(f"[data-pane=content][data-review='{review.id}'] #decide")).to_have_count(0)
    await newsroom.apply_decisions()
    again = await work_until_review(newsroom.sandbox, review.run)
    await page.goto(f"{newsroom.address}/reviews/{again.id}")
    await expect(page.locator("#asked")).to_contain_text("Mais curto")
    await expect(page.locator("#carried li")).to_contain_text("too loud")
    await expect(page.locator("#changes")).to_contain_text("menos que a poupança")
    await page.get_by_text("Side by side").click()
    await expect(page.locator(".cmp-b").first).to_be_visible()
    await page.locator("#notes").evaluate("field => { field.value = 'typed'; }")
    await page.get_by_role("button", name="Resolve").click()
    await expect(page.locator("#carried li[data-resolved=yes]")).to_have_count(1)
    assert await page.locator("#notes").input_value() == "typed"  # nothing that was typed is lost
    assert [each.resolved_by is not None for each in await newsroom.sandbox.client.reviews.list_comments(again)] == [
        True
    ]
