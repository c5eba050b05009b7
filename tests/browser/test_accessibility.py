"""axe-core on every page that is registered, in both languages, light and dark, on desktop and phone."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page
from starlette.routing import compile_path

import retoma_apps
from retoma.records import Role
from retoma.server.pages.registry import PAGES
from retoma.store.database import Database
from tests.browser.axe import find_violations
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database
from tests.server.people import ADMINISTRATOR, PASSWORD, add_person, ensure_administrator
from tests.wait_timeout import WAIT_TIMEOUT

LINK = re.compile(r'(?:href|action)="(/[^"#]*)"')
# What a link does not lead to, by why it is left out.
NO_PAGE = {
    "/static/{file}": "a file",
    "/static/apps/{app}/{file}": "a file",
    "/reviews/{review}/panes": "a part of /reviews/{review}",
    "/audit.csv": "a download",
    "/audit.jsonl": "a download",
    "/login/oidc": "leads to the identity provider",
    "/login/oidc/callback": "leads on from it",
    "/connections/consent/start": "leads to the service",
    "/connections/consent": "leads on from it",
}


@pytest.fixture
async def screen(database: Database) -> AsyncIterator[Screen]:
    """A server with all applications and some of their work, and people with accounts."""
    await empty_database(database)
    async with open_screen(database, application=retoma_apps.app, development=False) as made:
        client = made.sandbox.client
        await client.start("longform", {"topic": "Como investir em renda fixa", "seconds": 20}, tenant="financas")
        await made.sandbox.work(advance_clock=False)
        await ensure_administrator(client)
        await add_person(client, "rui@example.com", Role.REVIEWER, "financas")
        yield made


async def open_page(screen: Screen, width: int, scheme: str, language: str) -> Page:
    page = await screen.blank(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        locale=language,
    )
    page.set_default_timeout(WAIT_TIMEOUT * 1_000)
    await page.goto(f"{screen.address}/login")
    await page.locator("[name=email]").fill(ADMINISTRATOR)
    await page.locator("[name=password]").fill(PASSWORD)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{screen.address}/")
    return page


def list_paths(screen: Screen) -> list[str]:
    """List the paths of all pages that are registered, those of the applications first."""
    assert screen.sandbox.client.app is not None
    own = [each for application in screen.sandbox.client.app.applications for each in application.pages]
    return [each.path for each in (*own, *PAGES) if each.show is not None and each.path not in NO_PAGE]


async def find_pages(screen: Screen, page: Page) -> dict[str, str]:
    """Return the address of one page of each registered path that links lead to, starting at the home page."""
    paths = list_paths(screen)
    patterns = [(path, compile_path(path)[0]) for path in paths]
    found: dict[str, str] = {}
    waiting, seen = ["/", *(path for path in paths if "{" not in path)], set[str]()
    while waiting:
        address = waiting.pop(0)
        path = next((name for name, pattern in patterns if pattern.match(address.partition("?")[0])), None)
        if address in seen or path is None or path in found:
            continue
        seen.add(address)
        answer = await page.request.get(f"{screen.address}{address}")
        if answer.ok and answer.headers["content-type"].startswith("text/html"):
            found[path] = address
            waiting += [html.unescape(each) for each in LINK.findall(await answer.text())]
    return found


async def test_all_pages_without_parameters_are_checked(screen: Screen) -> None:
    found = await find_pages(screen, await open_page(screen, 1440, "light", "en"))
    left_out = [path for path in list_paths(screen) if path not in found and "{" not in path]
    assert left_out == []
    assert {"/runs/{run}", "/reviews/{review}"} <= found.keys()


@pytest.mark.parametrize("language", ["en", "pt-BR"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
async def test_every_page_is_accessible(screen: Screen, width: int, scheme: str, language: str) -> None:
    page = await open_page(screen, width, scheme, language)
    violations = {}
    for address in (await find_pages(screen, page)).values():
        await page.goto(f"{screen.address}{address}")
        if found := await find_violations(page):
            violations[address] = found
    assert violations == {}
