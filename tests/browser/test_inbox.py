"""The inbox as people use it all day: by keys, without page loads, with drafts, batches and colleagues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Dialog, Page, Route, expect

from retoma.records import Review, Role
from retoma.reviews import Decision
from retoma.server.pages import inbox
from retoma.states import ReviewState
from retoma.store.database import Database
from retoma.testing import NOON
from tests.browser.axe import find_violations
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database
from tests.server.pages.newsroom import make_application, start_until_review
from tests.server.people import PASSWORD, add_person, ensure_administrator
from tests.wait_timeout import WAIT_TIMEOUT

MAX_KEYS = 25


@pytest.fixture
async def newsroom(database: Database, tmp_path: Path) -> AsyncIterator[Screen]:
    await empty_database(database)
    async with open_screen(database, application=make_application(tmp_path)) as screen:
        yield screen
        assert screen.complaints == []


async def open_reviews(screen: Screen, count: int) -> list[Review]:
    """Open so many reviews, each due a minute after the one before."""
    found = []
    for number in range(1, count + 1):
        found.append(await start_until_review(screen.sandbox, topic=f"topic {number}"))
        await screen.sandbox.clock.advance(timedelta(minutes=1))
    return found


async def states_of(screen: Screen, reviews: list[Review]) -> list[ReviewState]:
    return [(await screen.sandbox.client.reviews.get(each.id)).state for each in reviews]


async def open_with_frozen_clock(screen: Screen, path: str) -> Page:
    """Open a page in which the time to undo does not pass."""
    page = await screen.open(path)
    await page.clock.set_fixed_time(NOON)
    return page


async def shows(page: Page, topic: str) -> None:
    await expect(page.locator("#review-title")).to_have_text(topic)


class Keyboard:
    """Counts the key presses; text that is typed is not a press."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.presses = 0

    async def press(self, key: str) -> None:
        self.presses += 1
        await self.page.keyboard.press(key)


async def test_ten_reviews_are_decided_by_keys_without_a_page_load(newsroom: Screen) -> None:
    reviews = await open_reviews(newsroom, 10)
    page = await newsroom.open("/reviews")
    loads: list[str] = []
    page.on("load", lambda loaded: loads.append(loaded.url))
    keyboard = Keyboard(page)
    for number in range(1, 8):
        await shows(page, f"topic {number}")
        await keyboard.press("PageDown")  # reads it
        await keyboard.press("a")
    await shows(page, "topic 8")
    await keyboard.press("e")
    await page.get_by_label("Title", exact=True).fill("A better title")
    await keyboard.press("Control+Enter")
    await shows(page, "topic 9")
    await keyboard.press("r")
    await page.keyboard.type("shorter, please")
    await keyboard.press("Control+Enter")
    await shows(page, "topic 10")
    await keyboard.press("x")
    await page.keyboard.type("off topic")
    await keyboard.press("Control+Enter")
    await expect(page.get_by_text("All done")).to_be_visible()
    assert loads == []
    assert keyboard.presses <= MAX_KEYS
    expected = [ReviewState.APPROVED] * 8 + [ReviewState.SENT_BACK, ReviewState.REJECTED]
    assert await states_of(newsroom, reviews) == expected


async def test_skipping_and_going_back_stay_in_the_filter(newsroom: Screen) -> None:
    reviews = await open_reviews(newsroom, 3)
    await newsroom.sandbox.client.reviews.assign(reviews[1].id, "Diego", by="ana")
    page = await newsroom.open("/reviews?assignee=nobody")
    await shows(page, "topic 1")
    await page.keyboard.press("j")
    await shows(page, "topic 3")
    await page.keyboard.press("k")
    await shows(page, "topic 1")
    await page.keyboard.press("a")
    await shows(page, "topic 3")
    await expect(page).to_have_url(f"{newsroom.address}/reviews/{reviews[2].id}?assignee=nobody")


@pytest.mark.parametrize("pointed", [True, False])
async def test_one_goes_through_all_parts_of_the_list_without_passing_over_a_review(
    newsroom: Screen, monkeypatch: pytest.MonkeyPatch, pointed: bool
) -> None:
    monkeypatch.setattr(inbox, "PAGE_SIZE", 2)
    reviews = await open_reviews(newsroom, 7)
    page = await newsroom.open("/reviews")
    if pointed:
        await page.locator("#list").hover()
    await shows(page, "topic 1")
    await page.keyboard.press("j")
    for number in range(2, 8):
        await shows(page, f"topic {number}")
        await page.keyboard.press("a")
    await shows(page, "topic 1")
    await expect(page.locator("[data-position]")).to_have_text("1 of 1")
    await page.keyboard.press("a")
    await expect(page.get_by_text("All done")).to_be_visible()
    await expect(page.locator("#toasts")).to_contain_text("Approved: topic 1")
    assert await states_of(newsroom, reviews) == [ReviewState.APPROVED] * 7


async def test_an_undo_by_key_brings_back_the_review_with_everything_typed(newsroom: Screen) -> None:
    reviews = await open_reviews(newsroom, 2)
    page = await open_with_frozen_clock(newsroom, "/reviews")
    await page.keyboard.press("e")
    await page.get_by_label("Title", exact=True).fill("My title")
    await page.get_by_label("Notes for the approval").fill("well done")
    await page.keyboard.press("Control+Enter")
    await shows(page, "topic 2")
    await page.keyboard.press("u")
    await shows(page, "topic 1")
    await expect(page.get_by_label("Title", exact=True)).to_have_value("My title")
    await expect(page.get_by_label("Notes for the approval")).to_have_value("well done")
    assert (await newsroom.sandbox.client.reviews.get(reviews[0].id)).is_open


async def test_an_undo_right_after_a_decision_takes_back_that_decision(newsroom: Screen) -> None:
    reviews = await open_reviews(newsroom, 3)
    page, is_held = await open_with_frozen_clock(newsroom, "/reviews"), asyncio.Event()

    async def hold(route: Route) -> None:
        await is_held.wait()
        await route.continue_()

    await page.route(f"**/reviews/{reviews[2].id}/panes", hold)
    await page.keyboard.press("a")
    await expect(page.locator("#toasts")).to_contain_text("Approved: topic 1")
    await shows(page, "topic 2")
    async with page.expect_response(f"**/reviews/{reviews[1].id}"):
        await page.keyboard.press("a")
    async with page.expect_response("**/undo*"):
        await page.keyboard.press("u")
    is_held.set()
    await shows(page, "topic 2")
    assert await states_of(newsroom, reviews) == [ReviewState.APPROVED, ReviewState.OPEN, ReviewState.OPEN]


async def test_an_edit_takes_the_place_of_the_text(newsroom: Screen) -> None:
    await open_reviews(newsroom, 1)
    page = await newsroom.open("/reviews")
    read = page.locator("#read .user-text", has_text="Tesouro Selic rende quase o mesmo.").first
    await expect(read).to_be_visible()
    await page.keyboard.press("e")
    await expect(page.locator("#edit-fields")).to_be_in_viewport()
    await expect(page.get_by_label("Text", exact=True)).to_be_visible()
    await expect(read).to_be_hidden()
    await page.keyboard.press("Escape")
    await expect(read).to_be_visible()


async def test_drafts_survive_reloading_theme_language_and_an_assignment(newsroom: Screen) -> None:
    (review,) = await open_reviews(newsroom, 1)
    page = await newsroom.open(f"/reviews/{review.id}")
    await page.keyboard.press("r")
    await page.keyboard.type("keep this")
    await expect(page.locator("[data-draft-status]")).to_have_text("Draft saved")
    notes = page.locator("#notes")
    await page.reload()
    await expect(notes).to_have_value("keep this")
    await expect(notes).to_be_visible()
    await page.get_by_role("link", name="Dark theme").click()
    await expect(notes).to_have_value("keep this")
    await page.get_by_role("link", name="Português").click()
    await expect(notes).to_have_value("keep this")
    await page.get_by_role("button", name="Atribuir").click()
    await expect(notes).to_have_value("keep this")


async def test_a_colleagues_decision_is_shown_at_the_form_while_one_types(newsroom: Screen) -> None:
    (review,) = await open_reviews(newsroom, 1)
    page = await newsroom.open(f"/reviews/{review.id}")
    await page.keyboard.press("r")
    await page.keyboard.type("my long text")
    await newsroom.sandbox.client.reviews.decide(review.id, Decision("approve", by="Marina"))
    await expect(page.locator("#dock-status")).to_contain_text("Decided by Marina: Approved")
    await expect(page.locator("#notes")).to_have_value("my long text")
    await expect(page.get_by_role("button", name="Send back now")).to_have_attribute("aria-disabled", "true")
    await page.reload()
    await expect(page.locator("#written")).to_contain_text("my long text")


async def test_rows_stay_in_place_until_one_asks_for_the_new_ones(newsroom: Screen) -> None:
    reviews = await open_reviews(newsroom, 3)
    page = await newsroom.open(f"/reviews/{reviews[1].id}")
    await page.locator(f"li[data-id='{reviews[2].id}']").hover()
    before = await page.locator(f"li[data-id='{reviews[2].id}']").bounding_box()
    await newsroom.sandbox.client.reviews.decide(
        reviews[0].id, Decision("approve", by="Marina", undo=timedelta(minutes=10))
    )
    await start_until_review(newsroom.sandbox, topic="topic 4")
    await expect(page.locator("#news")).to_have_text("1 new · 1 no longer open")
    assert await page.locator(f"li[data-id='{reviews[2].id}']").bounding_box() == before
    await page.locator("#news").click()
    await expect(page.locator("#list li .t")).to_have_text(["topic 2", "topic 3", "topic 4"])
    await expect(page.locator("#news")).to_be_hidden()


async def test_a_batch_shows_failures_first_and_each_is_undone(newsroom: Screen) -> None:
    reviews = await open_reviews(newsroom, 4)
    page = await open_with_frozen_clock(newsroom, "/reviews")
    await page.get_by_label("Select topic 1").click()
    await page.get_by_label("Select topic 4").click(modifiers=["Shift"])
    await expect(page.locator("#approve-picked")).to_have_text("Approve 4 selected")
    await newsroom.sandbox.client.reviews.decide(reviews[2].id, Decision("approve", by="Marina"))
    await page.locator("#approve-picked").click()
    await expect(page.locator("#batch-title")).to_have_text("3 of 4 approved")
    await page.clock.set_fixed_time(NOON)
    await expect(page.locator("#outcomes li").first).to_contain_text("Marina decided at")
    await page.get_by_role("button", name="Undo: topic 2").click()
    await expect(page.locator("#outcomes li", has_text="topic 2")).to_contain_text("undone, open again")
    await page.get_by_role("button", name="Undo all 2").click()
    await expect(page.locator("#outcomes li", has_text="topic 4")).to_contain_text("undone, open again")
    is_open = [state is ReviewState.OPEN for state in await states_of(newsroom, reviews)]
    assert is_open == [True, True, False, True]
    await page.reload()
    await expect(page.locator("#batch-title")).to_have_text("3 of 4 approved")


async def test_all_of_a_filter_are_approved_after_a_preview(newsroom: Screen) -> None:
    reviews = await open_reviews(newsroom, 3)
    page = await newsroom.open("/reviews?q=topic")
    await page.get_by_role("link", name="Approve all 3").click()
    await expect(page.locator("#batch-title")).to_have_text("Approve 3 reviews?")
    await page.get_by_role("button", name="Approve 3 reviews").click()
    await expect(page.locator("#batch-title")).to_have_text("3 of 3 approved")
    assert await states_of(newsroom, reviews) == [ReviewState.APPROVED] * 3


async def test_keys_are_shown_changed_and_off_in_fields(newsroom: Screen) -> None:
    reviews = await open_reviews(newsroom, 2)
    page = await newsroom.open("/reviews")
    await page.keyboard.press("?")
    await page.get_by_label("Approve", exact=True).fill("y")
    await page.get_by_role("button", name="Save the keys").click()
    await expect(page.locator("[data-do=approve] kbd")).to_have_text("Y")
    await page.wait_for_load_state()  # until the scripts of the next page have run, a key is lost
    await page.keyboard.press("/")
    await page.keyboard.type("y")
    await expect(page.locator("#filter [type=search]")).to_have_value("y")
    await page.keyboard.press("Tab")
    await page.locator("#read").focus()
    await page.keyboard.press("a")
    await page.keyboard.press("y")
    await shows(page, "topic 2")
    await expect(page.locator("#toasts")).to_contain_text("Approved: topic 1")
    assert (await newsroom.sandbox.client.reviews.get(reviews[0].id)).state is ReviewState.APPROVED


async def test_on_a_phone_the_list_comes_first_and_filters_are_folded(newsroom: Screen) -> None:
    await open_reviews(newsroom, 2)
    page = await newsroom.open("/reviews", width=390)
    await expect(page.locator("#list li").first).to_be_in_viewport()
    await expect(page.locator("#filter")).to_be_hidden()
    await expect(page.locator("#content")).to_be_hidden()
    await page.locator("#list a", has_text="topic 1").click()
    await expect(page.locator("#review-title")).to_be_in_viewport()
    await expect(page.locator("#list")).to_be_hidden()
    await page.locator("[data-do=approve]").click()
    await shows(page, "topic 2")


@pytest.mark.parametrize("language", ["en", "pt-BR"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
async def test_the_inbox_is_accessible(newsroom: Screen, width: int, scheme: str, language: str) -> None:
    reviews = await open_reviews(newsroom, 3)
    for path in ("/reviews", "/reviews/approve", "/reviews?view=grid", "/reviews?state=decided"):
        page = await newsroom.open(path, width, scheme, language)
        assert await find_violations(page) == [], path
        await page.close()
    page = await newsroom.open(f"/reviews/{reviews[0].id}", width, scheme, language)
    for key in ("r", "x", "e"):
        await page.keyboard.press(key)
        assert await find_violations(page) == [], key
        await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    assert await find_violations(page) == []


async def test_two_people_in_two_browsers_decide_one_review(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    async with open_screen(database, application=make_application(tmp_path), development=False) as screen:
        (review,) = await open_reviews(screen, 1)
        await ensure_administrator(screen.sandbox.client)
        dora, bia = [await log_in(screen, f"{name}@example.com") for name in ("dora", "bia")]
        for page in (dora, bia):
            await page.goto(f"{screen.address}/reviews/{review.id}")
        await dora.keyboard.press("r")
        await dora.keyboard.type("good")
        await dora.keyboard.press("Escape")
        await expect(bia.locator("#dock-status")).to_contain_text("Dora is reviewing it")
        await bia.keyboard.press("r")
        await bia.keyboard.type("too long")
        asked = await approve_when_asked_again(dora)
        await expect(dora.locator("#toasts")).to_contain_text("Approved: topic 1")
        assert [each.rpartition("\n")[2] for each in asked] == ["good", "good"]
        await expect(bia.locator("#dock-status")).to_contain_text("Decided by Dora: Approved")
        await expect(bia.locator("#notes")).to_have_value("too long")
        decided = await screen.sandbox.client.reviews.get(review.id)
        assert (decided.decided_by, decided.notes) == ("Dora", "good")


async def approve_when_asked_again(page: Page) -> list[str]:
    """Approve by key, but decline the first time: what was written to send it back would be a note of the approval."""
    asked: list[str] = []

    async def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        await (dialog.accept() if len(asked) == 2 else dialog.dismiss())

    page.on("dialog", answer)
    await page.keyboard.press("a")
    await expect(page.locator("#decide")).to_be_visible()
    await page.keyboard.press("a")
    return asked


async def test_a_viewer_reads_reviews_and_sees_who_decides(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    async with open_screen(database, application=make_application(tmp_path), development=False) as screen:
        reviews = await open_reviews(screen, 2)
        await ensure_administrator(screen.sandbox.client)
        page = await log_in(screen, "vera@example.com", Role.VIEWER)
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
        await page.clock.install()
        await page.goto(f"{screen.address}/reviews/{reviews[0].id}")
        note = page.locator("#read-only")
        await expect(note).to_have_text(
            "You can read this review. People with the role “Reviewer”, or a higher one, in “channel” decide it."
        )
        for control in ("#decide", "#batch-bar", "[data-pick]", "[data-claim]", "[data-composer]", "#edit-fields"):
            await expect(page.locator(control)).to_have_count(0)
        for key in ("a", "r", "x", "e", "s", "c"):
            await page.keyboard.press(key)
        await page.clock.fast_forward(60_000)
        await page.keyboard.press("j")
        await shows(page, "topic 2")
        assert sent == []


async def log_in(screen: Screen, email: str, role: Role = Role.REVIEWER) -> Page:
    """Open a browser for a new person who has the role in all tenants."""
    await add_person(screen.sandbox.client, email, role)
    page = await (await screen.browser.new_context(viewport={"width": 1440, "height": 900})).new_page()
    page.set_default_timeout(WAIT_TIMEOUT * 1_000)
    await page.goto(f"{screen.address}/login")
    await page.locator("[name=email]").fill(email)
    await page.locator("[name=password]").fill(PASSWORD)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{screen.address}/")
    return page
