"""A video in a real browser: from a topic that somebody types to the page that plays it, sent back at each review."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from retoma.store.database import Database
from retoma_apps.providers.youtube import LocalChannel
from retoma_apps.videos.application import make_app
from retoma_apps.videos.pages.pages import WATCH_URL
from tests.apps.videos.small_services import make_small_services
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database
from tests.wait_timeout import WAIT_TIMEOUT

TOPIC = "Como investir em renda fixa"
REVIEWS = ("script_review", "audio_review", "broll_review", "final_review")


@pytest.fixture
async def screen(database: Database, tmp_path: Path) -> AsyncIterator[Screen]:
    await empty_database(database)
    channel = LocalChannel(tmp_path / "channel", url=WATCH_URL)
    services = replace(make_small_services(tmp_path), channel=lambda _: channel)
    async with open_screen(database, application=make_app(services)) as made:
        await made.sandbox.client.tenants.set_profile("financas", {"seconds": 20})
        yield made
        assert made.complaints == []


NOTES = {
    "script_review": "mais longo",
    "audio_review": "mais rápido",
    "broll_review": "outro clipe",
    "final_review": "outras imagens",
}
"""What each step can follow offline."""


async def test_a_topic_becomes_a_playable_video_with_every_review_sent_back_once(screen: Screen) -> None:
    page = await screen.open("/videos/?new=1")
    await page.get_by_label("Topic").fill(TOPIC)
    await page.get_by_label("Channel", exact=True).fill("financas")
    await page.locator("#order button.primary").click()
    for step in REVIEWS:
        await open_review(screen, page, step)
        await send_back(page, step)
        await open_review(screen, page, step)
        await expect(page.locator("#history")).to_contain_text(NOTES[step])
        await approve(page, step)
    await screen.apply_decisions()
    await watch(screen, page)


async def open_review(screen: Screen, page: Page, step: str) -> None:
    """As a reviewer comes to it: by its link in the list of videos."""
    await screen.apply_decisions()
    await page.goto(f"{screen.address}/videos/")
    await page.locator("#videos a[href^='/reviews/']").click()
    await expect(page.locator("#facts")).to_contain_text(step)
    await expect(page.locator("#decide")).to_be_visible()
    assert await page.evaluate("document.scrollingElement.scrollHeight - innerHeight") <= 0  # only its panes scroll


async def send_back(page: Page, step: str) -> None:
    if step == "broll_review":
        await page.locator("input[name=items]").first.check()
    if step == "audio_review":
        await comment_on_two_rows(page, NOTES[step])
    if step == "final_review":
        await expect_thumbnails_as_on_youtube(page)
        await expect_the_film_beside_its_comments(page)
    await page.locator("[data-do=send_back]").click()
    if step == "final_review":
        await page.locator("input[value=thumbnail_gen]").check()
    if step == "audio_review":  # it can only go to the narration
        await expect(page.locator("input[name=to][type=radio]")).to_have_count(0)
        await expect(page.locator("select[name='feedback.voice'] option:not([value=''])")).not_to_have_count(0)
    await page.locator("#notes").fill(NOTES[step])
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("#toasts .toast")).to_be_visible()


async def comment_on_two_rows(page: Page, text: str) -> None:
    """Comment at a moment whose subtitle has two rows: it stays one comment, which quotes what is said there."""
    spoken = await page.locator("#narration").evaluate(MOVE_TO_TWO_ROWS)
    await page.locator("#review-title").click()
    await page.keyboard.press("c")
    await page.keyboard.type(text)
    await page.keyboard.press("Control+Enter")
    entries = page.locator("[data-list] li")
    await expect(entries).to_have_count(1)
    await expect(entries.locator("[data-quote]")).to_have_text(
        f"\N{LEFT DOUBLE QUOTATION MARK}{spoken}\N{RIGHT DOUBLE QUOTATION MARK}"
    )
    await expect(entries.locator("[data-text]")).to_have_text(text)


async def expect_the_film_beside_its_comments(page: Page) -> None:
    """Whoever writes a comment sees the film."""
    composer = page.locator("[data-composer]")
    await page.locator("#thumbnails").scroll_into_view_if_needed()
    await page.locator("#review-title").click()
    await page.keyboard.press("c")
    await expect(composer.locator("[data-text-input]")).to_be_focused()
    await expect(composer).to_be_in_viewport(ratio=1)
    await expect(page.locator("video#film")).to_be_in_viewport(ratio=1)
    assert not await composer.evaluate(IS_COVERED)


async def expect_thumbnails_as_on_youtube(page: Page) -> None:
    widths = await page.locator(".thumb .frame-16").evaluate_all("frames => frames.map(each => each.clientWidth)")
    assert widths == [360] * 3


async def approve(page: Page, step: str) -> None:
    if step == "final_review":
        await page.locator("input[name='value.thumbnail']").nth(1).check()
    await page.locator("[data-do=approve]").click()
    await expect(page.locator("#toasts .toast")).to_be_visible()


async def watch(screen: Screen, page: Page) -> None:
    await page.goto(f"{screen.address}/videos/")
    await expect(page.locator("#videos")).to_contain_text("Published")
    await page.locator("#videos a[href^='/videos/channel/']").click()
    player = page.locator("video").first
    await expect(player).to_be_visible()
    length = await player.evaluate(PLAYED)
    assert length > 10


MAX_KEYS = 25  # for ten scripts, with every key that is typed


async def test_ten_scripts_are_read_and_decided_with_few_keys_and_no_page_load(screen: Screen) -> None:
    for _ in range(10):
        await screen.sandbox.client.start("longform", {"topic": TOPIC, "seconds": 20}, tenant="financas")
        await screen.sandbox.work(advance_clock=False)
        await screen.sandbox.clock.advance(timedelta(minutes=1))
    reviews = await screen.sandbox.client.reviews.list()  # in the order in which they opened, as in the inbox
    page = await screen.open("/reviews")
    loads: list[str] = []
    page.on("load", lambda loaded: loads.append(loaded.url))
    keys: list[str] = []

    async def read() -> None:
        """Scroll until the end of the script has been in view."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            while not await page.locator("#script").evaluate(IS_READ):
                await page.locator("#read").evaluate(AWAIT_SCROLLING)
                await press("PageDown")
                await page.locator("#read").evaluate("read => read.scrolled")

    async def press(*pressed: str) -> None:
        for key in pressed:
            keys.append(key)
            await page.keyboard.press(key)

    for number in range(10):
        await expect(page.locator("#content")).to_have_attribute("data-review", str(reviews[number].id))
        await read()
        match number:
            case 7:
                await press("e", "End", "!", "Control+Enter")
            case 8:
                await press("r", "Shift+Tab", "Space", "Control+Enter")  # the last reason: longer
            case 9:
                await press("x", *"dup", "Control+Enter")
            case _:
                await press("a")
    await expect(page.get_by_text("All done")).to_be_visible()
    assert loads == []
    assert len(keys) <= MAX_KEYS, keys
    decided = [await screen.sandbox.client.reviews.get(each.id) for each in reviews]
    assert [each.state for each in decided] == [*["approved"] * 8, "sent_back", "rejected"]
    assert decided[7].value["title"].endswith("!")
    assert [each.notes for each in decided[8:]] == ["Longer", "dup"]


async def test_no_page_is_wider_than_a_small_desktop_screen(screen: Screen) -> None:
    page = await screen.open("/videos/?new=1", language="pt-BR")
    for language, path in (("pt", "/videos/?new=1"), ("pt", "/videos/metrics"), ("en", "/videos/metrics")):
        await page.goto(f"{screen.address}{path}{'&' if '?' in path else '?'}lang={language}")
        for width in (1280, 1366):
            await page.set_viewport_size({"width": width, "height": 800})
            assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (path, width)


AWAIT_SCROLLING = """read => {
    read.scrolled = new Promise(ended => read.addEventListener("scrollend", ended, {once: true}));
}"""
IS_READ = """script => {
    const bottom = script.querySelector(".script > :last-child").getBoundingClientRect().bottom;
    return bottom <= document.getElementById("read").getBoundingClientRect().bottom + 1;
}"""
IS_COVERED = """composer => {
    const film = document.querySelector("[data-player]").getBoundingClientRect();
    const { left, top } = composer.getBoundingClientRect();
    return left < film.right && top < film.bottom;
}"""
# Gives what is said there, on one line.
MOVE_TO_TWO_ROWS = """async audio => {
    const lines = [...document.querySelectorAll("[data-transcript] [data-start]")];
    const { start, end, said } = lines.find(line => line.dataset.said.includes("\\n")).dataset;
    await new Promise(moved => {
        audio.addEventListener("seeked", moved, {once: true});
        audio.currentTime = (Number(start) + Number(end)) / 2;
    });
    return said.replace("\\n", " ");
}"""
# Gives the length once the picture has moved.
PLAYED = """async video => {
    video.muted = true;
    await video.play();
    await new Promise(moved => video.addEventListener("timeupdate", () => video.currentTime > 0 && moved()));
    return video.duration;
}"""
