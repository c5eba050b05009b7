"""People decide in a real browser: they approve, send back, undo, and are beaten by a colleague."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from playwright.async_api import Dialog, Page, expect

from retoma.records import Review
from retoma.reviews import Decision
from retoma.states import ReviewState, RunState
from retoma.store.database import Database
from retoma.testing import NOON
from retoma.translations import Translator
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database
from tests.server import pictures
from tests.server.pages.newsroom import make_application, start_until_review, work_until_review
from tests.wait_timeout import WAIT_TIMEOUT

LONG_ENOUGH_TO_CLAIM = 9_000  # milliseconds on a review


@pytest.fixture
async def newsroom(database: Database, tmp_path: Path) -> AsyncIterator[Screen]:
    await empty_database(database)
    async with open_screen(database, application=make_application(tmp_path)) as screen:
        yield screen
        assert screen.complaints == []


async def apply_decisions(screen: Screen) -> None:
    """Let a decision take effect and do the work that follows."""
    await screen.sandbox.clock.advance(timedelta(seconds=11))
    await screen.sandbox.work(advance_clock=False)


async def end_of(screen: Screen, run: UUID) -> RunState:
    """Return the state in which the run ends; as for the next review, its last work may come a moment later."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        while not (found := await screen.sandbox.client.runs.get(run)).is_over:
            await screen.sandbox.work(advance_clock=False)
    return found.state


async def wait_for_review(screen: Screen, run: UUID) -> Review:
    """Return the next review. The server's own maintenance may apply the decision, so its work may follow later."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        while not (found := await screen.sandbox.client.reviews.list(run=run)):
            await screen.sandbox.work(advance_clock=False)
            await asyncio.sleep(0.01)
    return found[0]


def answer_dialogs(page: Page, *answers: bool) -> list[bool]:
    """Answer each time the page asks before it discards something; the list shrinks by the answers used."""
    left = list(answers)

    async def answer(dialog: Dialog) -> None:
        assert dialog.message.endswith("will be lost. Continue without them?")
        await (dialog.accept() if left.pop(0) else dialog.dismiss())

    page.on("dialog", answer)
    return left


async def test_a_review_goes_from_the_inbox_to_the_end_with_a_send_back_and_an_undo(newsroom: Screen) -> None:
    say = Translator("pt").gettext
    review = await start_until_review(newsroom.sandbox)
    page = await newsroom.open("/reviews", language="pt-BR")
    await page.clock.set_fixed_time(NOON)  # so that the moment in which it can be undone is long enough
    await page.get_by_role("link", name="Renda fixa em 2026").first.click()
    await expect(page).to_have_url(f"{newsroom.address}/reviews/{review.id}")
    await expect(page.locator("audio")).to_have_js_property("duration", 2)
    await page.get_by_role("link", name=say("Send back")).click()
    await page.get_by_label(say("What should be improved")).fill("alto demais")
    await expect(page.locator("#facts")).to_contain_text(say("you are reviewing it"))
    await page.get_by_role("button", name=say("Send back now")).click()
    await expect(page.locator("#toasts")).to_contain_text(Translator("pt").pgettext("state", "Sent back"))
    await page.locator("#toasts").get_by_role("button", name=say("Undo")).click()
    await expect(page.get_by_label(say("What should be improved"))).to_have_value("alto demais")
    await page.get_by_label(say("What should be improved")).fill("Mais curto")
    await page.get_by_role("button", name=say("Send back now")).click()
    await expect(page.locator("#toasts .toast")).to_be_visible()
    await apply_decisions(newsroom)
    again = await wait_for_review(newsroom, review.run)
    await page.goto(f"{newsroom.address}/reviews/{again.id}")
    await page.locator("[data-do=approve]").click()
    await expect(page.locator("#toasts")).to_contain_text(Translator("pt").pgettext("state", "Approved"))
    await apply_decisions(newsroom)
    last = await work_until_review(newsroom.sandbox, review.run)
    await page.goto(f"{newsroom.address}/reviews/{last.id}")
    await expect(page.locator("#approve-why")).to_have_text(say("To approve: %(field)s", field="Picture"))
    await page.keyboard.press("a")
    await expect(page.get_by_label("Picture")).to_be_focused()
    await page.keyboard.type("2")
    await expect(page.locator("#approve-why")).to_be_hidden()
    await page.locator("[data-do=approve]").click()
    await expect(page.locator("#toasts .toast")).to_be_visible()
    await apply_decisions(newsroom)
    assert await end_of(newsroom, review.run) is RunState.COMPLETED


async def test_a_reviewer_rejects_one_item_and_sees_it_in_the_run(database: Database) -> None:
    say = Translator("pt").gettext
    await empty_database(database)
    async with open_screen(database, application=pictures.app) as screen:
        cup, leaf = await pictures.start_until_reviews(screen.sandbox)
        page = await screen.open(f"/reviews/{cup.id}", language="pt-BR")
        await expect(page.locator("#sheet")).not_to_be_visible()
        await page.get_by_role("link", name=say("Reject")).click()
        await expect(page.locator("#sheet")).to_contain_text("Rejeita este item; os demais continuam.")
        await page.get_by_label(say("Reason for the rejection")).fill("tremida")
        await page.get_by_role("button", name=say("Yes, reject")).click()
        await expect(page.locator("#toasts .toast")).to_be_visible()
        await apply_decisions(screen)
        await screen.sandbox.client.reviews.decide(leaf.id, Decision("approve", by="ana"))
        assert await end_of(screen, cup.run) is RunState.COMPLETED_WITH_ERRORS
        await page.goto(f"{screen.address}/runs/{cup.run}")
        await expect(page.get_by_text(re.compile("rejected by .*: tremida")).first).to_be_visible()
        assert screen.complaints == []


async def test_a_reviewer_who_decides_second_sees_who_decided(newsroom: Screen) -> None:
    review = await start_until_review(newsroom.sandbox)
    page = await newsroom.blank(viewport={"width": 1440, "height": 900})
    await page.route(
        re.compile("/live"), lambda route: route.abort()
    )  # the decision comes before the news of the other
    await page.goto(f"{newsroom.address}/reviews/{review.id}#reject")
    await page.get_by_label("Reason for the rejection").fill("my reasons")
    await newsroom.sandbox.client.reviews.decide(review.id, Decision("approve", by="Marina"))
    await page.get_by_role("button", name="Yes, reject").click()
    await expect(page.locator("#first")).to_contain_text("Marina decided at 2030-01-01 12:00:00: approved.")
    await expect(page.locator("#written")).to_contain_text("my reasons")
    assert (await newsroom.sandbox.client.reviews.get(review.id)).state is ReviewState.APPROVED


async def test_an_approval_asks_before_it_discards_edits_or_comments(newsroom: Screen) -> None:
    review = await start_until_review(newsroom.sandbox)
    page = await newsroom.open(f"/reviews/{review.id}#edit")
    approve = page.locator("[data-do=approve]")
    answers = answer_dialogs(page, False, False, True)
    await page.get_by_label("Title", exact=True).fill("My own title")
    await approve.click()
    await expect(page.get_by_label("Title", exact=True)).to_have_value("My own title")
    await page.get_by_label("Title", exact=True).fill("Renda fixa em 2026")
    await page.get_by_role("link", name="Send back").click()
    await page.locator("#comments").fill("0:01 too loud")
    await approve.click()
    assert (await newsroom.sandbox.client.reviews.get(review.id)).is_open
    await approve.click()
    await expect(page.locator("#toasts .toast")).to_be_visible()
    assert answers == []


async def test_without_javascript_reviews_are_links_and_plain_forms(newsroom: Screen) -> None:
    first = await start_until_review(newsroom.sandbox, topic="first")
    await start_until_review(newsroom.sandbox, topic="second")
    page = await newsroom.blank(java_script_enabled=False, viewport={"width": 1440, "height": 900})
    await page.goto(f"{newsroom.address}/reviews/{first.id}")
    approve = page.locator("[data-do=approve]")
    await expect(approve).to_be_visible()
    await page.get_by_role("link", name="Edit").click()
    await expect(approve).to_be_hidden()
    await page.get_by_role("link", name="Close").first.click()
    await expect(approve).to_be_visible()
    await page.get_by_role("link", name="Send back").click()
    await page.get_by_label("What should be improved").fill("shorter")
    await page.get_by_role("button", name="Send back now").click()
    await expect(page.locator("#review-title")).to_have_text("second")
    await page.locator("#toasts").get_by_role("button", name="Undo").click()
    await expect(page.locator("#review-title")).to_have_text("first")
    await expect(page.get_by_label("What should be improved")).to_have_value("shorter")
    assert (await newsroom.sandbox.client.reviews.get(first.id)).is_open


async def test_a_rejected_edit_is_shown_at_its_field_and_is_not_dropped_by_approving(newsroom: Screen) -> None:
    review = await start_until_review(newsroom.sandbox)
    page = await newsroom.open(f"/reviews/{review.id}#edit")
    await page.get_by_label("Score").fill("much")
    await page.get_by_role("button", name="Edit and approve").click()
    await expect(page.get_by_label("Score")).to_be_focused()
    await expect(page.get_by_label("Score")).to_be_in_viewport()
    await newsroom.expect_complaints("422")
    answers = answer_dialogs(page, False)
    await page.locator("[data-do=approve]").click()
    assert answers == []
    assert (await newsroom.sandbox.client.reviews.get(review.id)).is_open


async def test_the_countdown_ends_and_removes_the_button(newsroom: Screen) -> None:
    await start_until_review(newsroom.sandbox)
    page = await newsroom.blank()
    # While the clock is paused, a page that the stream refreshes counts no further.
    await page.route(re.compile("/api/v1/live"), lambda route: route.abort())
    await page.clock.install(time=NOON)
    await page.clock.pause_at(NOON + timedelta(seconds=1))

    async def wait(seconds: int) -> None:
        await newsroom.sandbox.clock.advance(timedelta(seconds=seconds))
        await page.clock.run_for(seconds * 1_000)

    await page.goto(f"{newsroom.address}/reviews")
    await page.locator("[data-do=approve]").click()
    undo = page.locator("#toasts").get_by_role("button", name="Undo")
    await expect(undo).to_be_visible()
    await wait(4)
    await expect(undo).to_be_visible()
    await wait(7)
    await expect(undo).to_be_hidden()


async def test_others_see_who_is_viewing_a_review_while_they_view_it(newsroom: Screen) -> None:
    review = await start_until_review(newsroom.sandbox)
    page = await newsroom.blank(viewport={"width": 1440, "height": 900})
    await page.clock.install()
    await page.goto(f"{newsroom.address}/reviews/{review.id}")
    await page.clock.fast_forward(LONG_ENOUGH_TO_CLAIM)
    await expect(page.get_by_role("button", name="Claim")).to_be_hidden()
    for _ in range(2):
        await newsroom.sandbox.clock.advance(timedelta(minutes=6))
        async with page.expect_response(re.compile("/claim")):
            await page.clock.fast_forward(6 * 60_000)
    assert (await newsroom.sandbox.client.reviews.get(review.id)).claimed_by == "Dora"


async def open_with_stopped_clock(newsroom: Screen, path: str) -> Page:
    page = await newsroom.blank(viewport={"width": 1440, "height": 900})
    await page.clock.install(time=NOON)
    await page.clock.pause_at(NOON + timedelta(seconds=1))
    await page.goto(f"{newsroom.address}{path}")
    return page


async def open_reviews(newsroom: Screen, count: int) -> list[Review]:
    """Open reviews in the order of the list."""
    found = []
    for number in range(count):
        found.append(await start_until_review(newsroom.sandbox, topic=f"topic {number}"))
        await newsroom.sandbox.clock.advance(timedelta(minutes=1))
    return found


async def claimed_by(newsroom: Screen, review: Review) -> str | None:
    return (await newsroom.sandbox.client.reviews.get(review.id)).claimed_by


async def wait_until_claimed_by(newsroom: Screen, review: Review, name: str | None) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT):
        while await claimed_by(newsroom, review) != name:  # noqa: ASYNC110  (a page claims it)
            await asyncio.sleep(0.01)


async def test_a_review_is_claimed_by_reading_it_and_released_by_going_on(newsroom: Screen) -> None:
    reviews = await open_reviews(newsroom, 3)
    page = await open_with_stopped_clock(newsroom, "/reviews")
    title = page.locator("#review-title")
    for number in range(2):  # passes by
        await expect(title).to_have_text(f"topic {number}")
        await page.keyboard.press("j")
    await expect(title).to_have_text("topic 2")
    await page.clock.fast_forward(LONG_ENOUGH_TO_CLAIM)
    await wait_until_claimed_by(newsroom, reviews[2], "Dora")
    assert [await claimed_by(newsroom, each) for each in reviews[:2]] == [None, None]
    await page.keyboard.press("k")
    await wait_until_claimed_by(newsroom, reviews[2], None)


async def test_a_review_is_claimed_by_the_first_input_and_stays_claimed(newsroom: Screen) -> None:
    reviews = await open_reviews(newsroom, 2)
    page = await open_with_stopped_clock(newsroom, "/reviews")
    await page.keyboard.press("r")
    await page.keyboard.type("too long")
    await wait_until_claimed_by(newsroom, reviews[0], "Dora")
    await page.keyboard.press("Escape")
    await page.keyboard.press("j")
    await expect(page.locator("#review-title")).to_have_text("topic 1")
    await page.clock.fast_forward(LONG_ENOUGH_TO_CLAIM)
    await wait_until_claimed_by(newsroom, reviews[1], "Dora")
    assert await claimed_by(newsroom, reviews[0]) == "Dora"


async def test_no_page_is_wider_than_the_screen(newsroom: Screen) -> None:
    review = await start_until_review(newsroom.sandbox, topic="x" * 100)
    page = await newsroom.open("/reviews", language="pt-BR")
    for path in (
        "/reviews",
        "/reviews/approve",
        "/reviews?view=grid",
        f"/reviews/{review.id}#edit",
        f"/reviews/{review.id}#send-back",
        f"/runs/{review.run}",
    ):
        await page.goto(f"{newsroom.address}{path}")
        for width in (390, 820, 1440):
            await page.set_viewport_size({"width": width, "height": 900})
            assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (path, width)


@pytest.mark.parametrize("width", [1440, 390])
async def test_a_missing_field_is_not_hidden_under_the_bar(newsroom: Screen, width: int) -> None:
    review = await start_until_review(newsroom.sandbox)
    await newsroom.sandbox.client.reviews.decide(review.id, Decision("approve", by="ana"))
    final = await work_until_review(newsroom.sandbox, review.run)
    page = await newsroom.open(f"/reviews/{final.id}", width)
    await page.set_viewport_size({"width": width, "height": 480})
    field = page.locator("[name='value.picture']").first
    await field.evaluate("field => { field.required = true; field.value = ''; field.reportValidity(); }")
    await expect(field).to_be_focused()
    bar, wrong = await page.locator("#decide").bounding_box(), await field.bounding_box()
    assert bar is not None
    assert wrong is not None
    assert wrong["y"] + wrong["height"] <= bar["y"]
