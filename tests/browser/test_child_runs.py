"""From a run to its child runs and back."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from retoma.store.database import Database
from retoma.translations import Translator
from tests.browser.screen import open_screen
from tests.conftest import empty_database
from tests.server.pages import families
from tests.server.pages.families import start_family


@pytest.mark.parametrize(("locale", "scheme"), [("en", "light"), ("pt-BR", "dark")])
async def test_a_person_goes_from_a_run_to_the_child_that_failed_and_back(
    database: Database, locale: str, scheme: str
) -> None:
    await empty_database(database)
    translate = Translator(locale[:2])
    async with open_screen(database, application=families.app) as screen:
        run = await start_family(screen.sandbox, "tea", "bad milk")
        page = await screen.open(f"/runs/{run}", scheme=scheme, language=locale)
        children = page.locator("#children")
        await expect(children.get_by_role("heading")).to_have_text(translate.gettext("Child runs"))
        await children.get_by_role("row").nth(1).get_by_role("link").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("About bad milk")
        await expect(page.locator("#children")).to_be_hidden()
        facts = page.locator("#facts")
        await expect(facts.get_by_text(translate.gettext("Child of"), exact=True)).to_be_visible()
        await facts.get_by_role("link", name="Spring issue").click()
        await page.get_by_role("link", name=translate.gettext("Show all")).click()
        await expect(page.locator("#runs tbody tr")).to_have_count(2)
        await page.get_by_label(translate.gettext("State"), exact=True).select_option("failed")
        await page.get_by_role("button", name=translate.gettext("Filter")).click()
        await expect(page.locator("#runs tbody tr")).to_have_count(1)
        assert screen.complaints == []
