"""axe-core on every page that is registered, in both languages, light and dark, on desktop and phone."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from uuid import UUID

import pytest
from playwright.async_api import Page
from starlette.routing import compile_path

import retoma_apps
from retoma import App
from retoma.records import Role
from retoma.reviews import Decision
from retoma.server.pages.registry import PAGES
from retoma.store.database import Database
from retoma_apps.autowriter.application import from_environment
from tests.apps.autowriter.samples import make_request
from tests.apps.videos.small_services import make_small_app
from tests.browser.axe import find_violations, load_source
from tests.browser.screen import Screen, open_screen
from tests.conftest import empty_database
from tests.server.people import ADMINISTRATOR, PASSWORD, add_person, ensure_administrator
from tests.wait_timeout import WAIT_TIMEOUT

TOPIC = "Como investir em renda fixa"
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
        await client.start("longform", {"topic": TOPIC, "seconds": 20}, tenant="financas")
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


@pytest.fixture
async def later_work(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Screen]:
    """A server of videos and articles without any work yet, unless axe-core is left out."""
    load_source()
    await empty_database(database)
    monkeypatch.setenv("RETOMA_HOME", str(tmp_path))
    application = App("later", includes=[make_small_app(tmp_path), from_environment()])
    async with open_screen(database, application=application) as made:
        yield made


async def test_the_pages_of_later_work_are_accessible(later_work: Screen) -> None:
    addresses = await reach_later_states(later_work)
    violations = {}
    for width, scheme, language in product((1440, 390), ("light", "dark"), ("en", "pt-BR")):
        page = await later_work.open("/", width, scheme, language)
        for address in addresses:
            await page.goto(f"{later_work.address}{address}")
            if found := await find_violations(page):
                violations[f"{address} {width} {scheme} {language}"] = found
        await page.close()
    assert violations == {}


async def reach_later_states(screen: Screen) -> list[str]:
    """Return the addresses of reviews of a narration, clips, a film and an article, and of runs with charges."""
    client, addresses = screen.sandbox.client, []
    for approvals in (1, 2, 3):  # until the narration, the footage and the film
        run = await start_video(screen, approvals=approvals)
        (review,) = await client.reviews.list(run=run)
        addresses.append(f"/reviews/{review.id}")
    addresses += [f"/runs/{run}", "/reviews?state=decided"]
    rejected = await start_video(screen, approvals=0)
    (review,) = await client.reviews.list(run=rejected)
    await client.reviews.decide(review.id, Decision("reject", by="ana", notes="off topic"))
    await screen.apply_decisions()
    request = make_request(word_count=700)  # the offline writer knows fewer words
    autowriter = next(each for each in screen.sandbox.app.applications if each.name == "autowriter")
    await client.scope_to(autowriter).tenants.set_profile(request.blog_id, {"name": "Saúde"})
    article = await client.start("article", request.model_dump(mode="json"), tenant=request.blog_id)
    await screen.apply_decisions()
    (review,) = await client.reviews.list(run=article.id)
    return [*addresses, f"/runs/{rejected}", f"/reviews/{review.id}", f"/runs/{article.id}"]


async def start_video(screen: Screen, *, approvals: int) -> UUID:
    """Start a video, and approve its first reviews."""
    client = screen.sandbox.client
    run = (await client.start("longform", {"topic": TOPIC, "seconds": 20}, tenant="financas")).id
    await screen.apply_decisions()
    for _ in range(approvals):
        (review,) = await client.reviews.list(run=run)
        await client.reviews.decide(review.id, Decision("approve", by="ana"))
        await screen.apply_decisions()
    return run
