"""AutoWriter in a real browser: from a CSV file that somebody chooses to a draft, with a decision on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Page, expect
from pydantic import SecretStr

from retoma.files import FileSettings, create_file_store
from retoma.store.database import Database
from retoma_apps.autowriter.application import from_environment, make_app
from retoma_apps.autowriter.steps.writing.offline import OFFLINE_MODEL
from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.providers.keywords import OfflineKeywords
from retoma_apps.providers.wordpress import WordPress, WordPressSettings
from tests.apps.autowriter.samples import HEADER, LINE
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database
from tests.wordpress.posts import read_post
from tests.wordpress.site import WordPress as Server

HOSTILE_THEME = "Café <script>alert(1)</script>"
FILE = "\n".join(
    [
        HEADER,
        LINE.replace("400", "700").replace("explicar", "explicar no navegador"),  # the offline writer knows fewer words
        "saude,Café,explicar,pt-BR,7",
        f"saude,{HOSTILE_THEME},explicar quanto café é seguro,pt-BR,400",
    ]
)


@pytest.fixture
async def screen(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Screen]:
    await empty_database(database)
    monkeypatch.setenv("RETOMA_HOME", str(tmp_path))
    application = from_environment()  # without any key, everything happens on this machine
    async with open_screen(database, application=application) as made:
        yield made
        assert made.complaints == []


@pytest.fixture
async def wordpress_screen(database: Database, tmp_path: Path, site: Server) -> AsyncIterator[Screen]:
    """AutoWriter that publishes to a real WordPress."""
    await empty_database(database)
    blog = WordPress(WordPressSettings(base_url=f"{site.address}/", secret=SecretStr(site.credentials["/"])))
    application = make_app(
        llm=OFFLINE_MODEL,
        images=OfflineImages(),
        keywords=OfflineKeywords(),
        open_blog=lambda _: blog,
        files=create_file_store(FileSettings(home=tmp_path)),
    )
    async with open_screen(database, application=application) as made:
        yield made
        assert made.complaints == []
    await blog.close()


async def test_a_csv_file_becomes_drafts_with_a_decision_on_the_way(wordpress_screen: Screen, site: Server) -> None:
    screen = wordpress_screen
    page = await screen.open("/articles/")
    await create_blog(page)
    await upload(screen, page)
    await start_import(screen, page)
    await screen.apply_decisions()
    await expect(page.locator("#rows")).to_contain_text("Needs review")
    await page.get_by_role("link", name="Café e cafeína").click()
    await expect(page.locator("#review")).to_contain_text("A person has to decide")
    await expect(page.locator("#facts a[target=_blank]")).to_have_count(0)
    await accept(screen, page)
    await page.goto(f"{screen.address}/articles/?state=done")
    await expect(page.locator("#articles tbody tr")).to_have_count(2)
    await page.get_by_role("link", name="Café e cafeína").click()
    await check_draft(page, site)
    await page.goto(f"{screen.address}/articles/?state=done")
    await page.get_by_role("link", name=HOSTILE_THEME).click()
    await expect(page.locator("#article h1")).to_be_visible()
    await expect(page.locator("#article img").first).to_be_visible()
    assert await page.locator("#article img").first.evaluate("image => image.naturalWidth") > 100
    await rerun_seo(screen, page)


async def create_blog(page: Page) -> None:
    await page.get_by_role("link", name="New blog").click()
    await page.get_by_label("Name", exact=True).fill("Saúde")
    await page.get_by_label("Id", exact=True).fill("saude")
    await page.get_by_role("button", name="Create the blog").click()
    await expect(page.locator("h1")).to_have_text("Saúde")


async def upload(screen: Screen, page: Page) -> None:
    await page.goto(f"{screen.address}/articles/imports")
    await page.get_by_label("CSV file").set_input_files(
        {"name": "julho.csv", "mimeType": "text/csv", "buffer": FILE.encode()}
    )
    await page.get_by_role("button", name="Show the preview").click()
    await expect(page.locator("#start")).to_contain_text("2 lines can be imported, 1 line has an error")
    await expect(page.locator("tr.wrong")).to_contain_text("Enter a whole number from 200 to 5,000.")


async def start_import(screen: Screen, page: Page) -> None:
    await page.get_by_role("button", name="Start the import").click()
    await expect(page.get_by_role("alert")).to_contain_text("Tick the box")
    await screen.expect_complaints("422")
    await page.get_by_label("Import only the 2 lines without errors").check()
    await page.get_by_role("button", name="Start the import").click()
    await expect(page.get_by_role("status")).to_contain_text("The import has started.")


async def accept(screen: Screen, page: Page) -> None:
    await page.locator("#review a").click()
    await expect(page.locator("#findings")).to_contain_text("700 were requested")
    await page.locator("[data-do=approve]").click()
    await expect(page.locator("#toasts .toast")).to_be_visible()
    await screen.apply_decisions()


async def rerun_seo(screen: Screen, page: Page) -> None:
    title = await page.locator("#article h1").inner_text()
    await page.get_by_role("button", name="SEO").click()
    await expect(page.get_by_role("status")).to_contain_text("The rerun has started.")
    await screen.apply_decisions()
    await expect(page.locator("#head")).to_contain_text("Draft ready")
    await expect(page.locator("#article h1")).not_to_have_text(title)
    await page.get_by_role("link", name="Compare revisions").click()
    await expect(page.locator("#part-title del").first).to_be_visible()
    await expect(page.locator("#part-body")).to_contain_text("no changes")


async def check_draft(page: Page, site: Server) -> None:
    """Check that WordPress has the article of this page as a draft."""
    title = await page.locator("#article h1").inner_text()
    draft = urlsplit(await page.locator("#facts a[target=_blank]").get_attribute("href") or "")
    assert f"{draft.scheme}://{draft.netloc}" == site.address
    post = await asyncio.to_thread(read_post, site, int(parse_qs(draft.query)["post"][0]))
    assert (post["status"], post["title"]) == ("draft", title)


async def test_no_page_is_wider_than_the_screen(screen: Screen) -> None:
    page = await screen.open("/articles/", language="pt-BR")
    await screen.sandbox.client.tenants.set_profile("saude", {"name": "Saúde"})
    for path in ("/articles/", "/articles/imports", "/articles/blogs?new=1", "/articles/new"):
        await page.goto(f"{screen.address}{path}")
        for width in (390, 1280, 1366):
            await page.set_viewport_size({"width": width, "height": 800})
            assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (path, width)
