"""The dashboard in a real browser: its flows, its policy, its shapes."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from playwright.async_api import expect

from retoma.states import RunState
from retoma.store.database import Database
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database
from tests.server.pages.test_pages import EVERYTHING
from tests.server.people import ADMINISTRATOR, PASSWORD, ensure_administrator


async def test_a_run_is_found_inspected_and_cancelled(screen: Screen) -> None:
    run = await screen.sandbox.client.start("film", {"topic": "tea"}, tenant="shop")
    page = await screen.open("/")
    await page.get_by_role("navigation", name="Main").first.get_by_role("link", name="Runs").click()
    await page.get_by_role("link", name=str(run.id)[:13]).click()
    await page.locator("svg.graph a").first.click()
    await expect(page).to_have_url(f"{screen.address}/runs/{run.id}?step=lines")
    await page.get_by_text("Cancel run").click()
    await page.get_by_role("button", name="Yes, cancel it").click()
    await expect(page.get_by_role("status")).to_have_text("The run is being cancelled.")
    assert (await screen.sandbox.client.runs.get(run.id)).state is RunState.CANCELLED


async def test_a_page_follows_its_run_live(screen: Screen) -> None:
    run = await screen.sandbox.client.start("film", {"topic": "bad"})
    page = await screen.open(f"/runs/{run.id}")
    await expect(page.locator("#head .badge")).to_have_text("Running")
    await screen.sandbox.work()
    await expect(page.locator("#head .badge")).to_have_text("Completed with errors")


async def test_hostile_text_is_never_executed(screen: Screen) -> None:
    run = await screen.sandbox.client.start("film", {"topic": f"bad {EVERYTHING}"}, tenant=EVERYTHING)
    await screen.sandbox.work()
    page = await screen.open(f"/runs/{run.id}?step=image")
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await page.locator("#jobs a").first.click()
    await expect(page.locator("#step h3").first).to_contain_text("<script>alert(1)</script>")
    assert dialogs == []


@pytest.mark.parametrize(
    ("width", "scheme", "language"), [(390, "light", "pt-BR"), (820, "dark", "en"), (1440, "dark", "pt-BR")]
)
async def test_no_page_is_wider_than_the_screen(screen: Screen, width: int, scheme: str, language: str) -> None:
    run = await screen.sandbox.client.start("film", {"topic": "bad", "scenes": 20})
    await screen.sandbox.work()
    page = await screen.open("/", width, scheme, language)
    for path in (
        "/",
        "/runs",
        f"/runs/{run.id}?step=image",
        "/queues",
        "/pools",
        "/workers",
        "/retries",
        "/dead-letters",
        "/bulk-actions/new",
        "/charts",
        "/deliveries",
        "/style-guide",
    ):
        await page.goto(f"{screen.address}{path}")
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path


async def test_runs_that_match_a_filter_are_cancelled_with_the_keyboard(screen: Screen) -> None:
    for tenant in ("shop", "shop", "other"):
        await screen.sandbox.client.start("film", {}, tenant=tenant)
    page = await screen.open("/runs?tenant=shop", 390)
    await page.get_by_text("Apply to all matching…").press("Enter")
    await page.get_by_role("link", name="Cancel runs…").press("Enter")
    await expect(page.locator("#count")).to_have_text("2 runs would be cancelled. This cannot be undone.")
    await page.get_by_role("button", name="Cancel runs: 2").press("Enter")
    await expect(page.get_by_role("status")).to_have_text("2 of 2")  # the server has done it, and the page has followed
    found = {run.tenant: run.state for run in await screen.sandbox.client.runs.list()}
    assert found == {"shop": RunState.CANCELLED, "other": RunState.RUNNING}


async def test_a_person_logs_in_and_out(database: Database) -> None:
    await empty_database(database)
    async with open_screen(database, development=False) as screen:
        await ensure_administrator(screen.sandbox.client)
        page = await screen.open("/workers")
        await page.get_by_label("E-mail address").fill(ADMINISTRATOR)
        await page.get_by_label("Password").fill(PASSWORD)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Workers", exact=True)).to_be_visible()
        await page.get_by_role("link", name="Your account: Ana").click()
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_role("status")).to_have_text("You have logged out.")
        assert screen.complaints == []


@pytest.mark.parametrize(
    ("language", "pattern", "note"),
    [
        ("en", "%Y-%m-%d %H:%M:%S", "Times are shown in America/Sao_Paulo."),
        ("pt-BR", "%d/%m/%Y %H:%M:%S", "Horários no fuso America/Sao_Paulo."),
    ],
)
async def test_times_are_in_the_viewers_time_zone_from_the_first_page(
    screen: Screen, language: str, pattern: str, note: str
) -> None:
    started = await screen.sandbox.client.start("film", {"topic": "tea"})
    run = await screen.sandbox.client.runs.get(started.id)
    page = await screen.blank(timezone_id="America/Sao_Paulo", locale=language)
    for server_zone in ("UTC", "America/Sao_Paulo"):  # as the script rewrites the first page, and as the server renders
        await page.goto(f"{screen.address}/runs/{run.id}")
        await expect(page.locator("html")).to_have_attribute("data-time-zone", server_zone)
        shown = page.locator("#facts time").first
        await expect(shown).to_have_text(run.run_at.astimezone(ZoneInfo("America/Sao_Paulo")).strftime(pattern))
        await expect(shown).to_have_attribute("title", f"{run.run_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")
        await expect(page.locator("footer.foot")).to_contain_text(note)
    await screen.sandbox.work()
    await expect(page.locator("#facts time").nth(1)).to_be_visible()  # the end, which a live update has brought
    assert note in await page.locator("footer.foot").inner_text()
