"""What a person does on the page of an ended run, in both languages."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from retoma import App
from retoma.files import FileSettings, create_file_store
from retoma.states import RunState
from retoma.store.database import Database
from retoma.translations import Translator
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database
from tests.server.test_items_and_files import NAME, PAGE, Papers, reading

LANGUAGES = [("en", "en"), ("pt-BR", "pt")]


async def make_end(screen: Screen) -> str:
    """The id of a run that is over, with an item that failed."""
    run = await screen.sandbox.client.start("film", {"topic": "bad", "scenes": 2})
    await screen.sandbox.work()
    return str(run.id)


@pytest.mark.parametrize(("locale", "language"), LANGUAGES)
async def test_a_result_is_edited_after_a_typing_error_and_another_item_is_skipped(
    screen: Screen, locale: str, language: str
) -> None:
    run = await make_end(screen)
    page = await screen.open(f"/runs/{run}", language=locale)
    await page.locator("#item-rows").get_by_role("link", name="bad 0").click()
    await page.get_by_text(Translator(language).gettext("Edit the result"), exact=True).click()
    field = page.get_by_label(Translator(language).gettext("The result, as JSON"))
    await field.fill("A LAMP")
    await page.get_by_role("button", name=Translator(language).gettext("Save the result")).click()
    message = Translator(language).gettext("Invalid JSON at line %(line)s, column %(column)s.", line=1, column=1)
    await expect(page.get_by_role("alert")).to_have_text(
        f"{message} {Translator(language).gettext('Nothing was changed.')}"
    )
    await expect(field).to_have_value("A LAMP")
    await screen.expect_complaints("422")
    await field.fill('"A LAMP"')
    await page.get_by_role("button", name=Translator(language).gettext("Save the result")).click()
    await expect(page.get_by_role("status")).to_have_text(
        Translator(language).gettext("The result is saved, and dependent steps are being rerun.")
    )
    await screen.sandbox.work()
    await page.goto(f"{screen.address}/runs/{run}?step=image&item=bad+1")
    await page.get_by_text(Translator(language).gettext("Skip this item")).click()
    await page.get_by_role("button", name=Translator(language).gettext("Yes, skip it")).click()
    await expect(page.get_by_role("status")).to_have_text(Translator(language).gettext("The item has been skipped."))
    await screen.sandbox.work()
    (found,) = await screen.sandbox.client.runs.list()
    assert (found.state, (await screen.sandbox.client.runs.get_results(found.id))["cut"]) == (
        RunState.COMPLETED,
        "A LAMP",
    )


async def test_items_are_found_by_state_and_by_text(screen: Screen) -> None:
    locale, language = LANGUAGES[1]
    run = await screen.sandbox.client.start("film", {"topic": "bad", "scenes": 30})
    await screen.sandbox.work()
    page = await screen.open(f"/runs/{run.id}", language=locale)
    rows = page.locator("#item-rows tbody tr")
    await expect(rows).to_have_count(25)
    await page.get_by_role("link", name=Translator(language).gettext("More items")).click()
    await expect(rows).to_have_count(5)
    await page.locator("#items").get_by_role("link", name=Translator(language).pgettext("state", "Failed")).click()
    await page.get_by_label(Translator(language).gettext("Find an item by its key")).fill("BAD 7")
    await page.keyboard.press("Enter")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("no paint left")


async def test_a_file_is_downloaded_and_never_displayed(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    files = create_file_store(FileSettings(home=tmp_path, files_url=None))
    async with open_screen(database, application=App("readers", pipelines=[reading], files=files)) as screen:
        saved = await files.save(PAGE, name=NAME)
        run = await screen.sandbox.client.start("reading", Papers(papers=[saved]))
        await screen.sandbox.work()
        page = await screen.open(f"/runs/{run.id}")
        async with page.expect_download() as downloading:
            await page.locator(f'a[href$="{saved.file}"]').first.click()
        download = await downloading.value
        assert (await download.path()).read_bytes() == PAGE
        assert "/" not in download.suggested_filename
        assert screen.complaints == []
