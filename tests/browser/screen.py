"""Chromium against a listening server: what people really see and click."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from fastapi import FastAPI
from playwright.async_api import Browser, Page, async_playwright, expect

from retoma import App, Settings
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.server import make_server
from retoma.store.database import Database
from retoma.testing import Sandbox, sandbox
from tests.engine.builders import value
from tests.server.api import DEVELOPER, app
from tests.wait_timeout import WAIT_TIMEOUT

TOKEN = "token-of-this-start"
UNDO = timedelta(seconds=11)
PENDING = """
    select exists (select from retoma.reviews where state <> 'open' and applied_at is null)
        or exists (select from retoma.jobs where state = 'ready' and ready_at is null)
"""
_open: list[Browser] = []
expect.set_options(timeout=WAIT_TIMEOUT * 1_000)


@asynccontextmanager
async def open_browser() -> AsyncIterator[None]:
    """For all screens until it is closed; their pages share nothing."""
    async with async_playwright() as player:
        browser = await player.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        _open.append(browser)
        yield
        _open.remove(browser)
        await browser.close()


@dataclass
class Screen:
    """`complaints` are the browser's reports: script errors and policy violations."""

    browser: Browser
    sandbox: Sandbox
    address: str
    server: FastAPI
    token: str | None = None
    complaints: list[str] = field(default_factory=list)

    async def blank(self, **options: Any) -> Page:
        """A page that has gone nowhere yet."""
        made = await self.browser.new_page(**options)
        if self.token is not None:
            port = self.address.rpartition(":")[2]
            await made.context.add_cookies([{"name": f"retoma-dev-{port}", "value": self.token, "url": self.address}])
        made.set_default_timeout(WAIT_TIMEOUT * 1_000)
        return made

    async def open(self, path: str, width: int = 1440, scheme: str = "light", language: str = "en") -> Page:
        made = await self.blank(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            locale=language,
        )
        made.on("console", lambda message: self.complaints.append(message.text))
        made.on("pageerror", lambda error: self.complaints.append(str(error)))
        await made.goto(f"{self.address}{path}")
        return made

    async def apply_decisions(self) -> None:
        """Do all work, with decisions once they can no longer be undone. The server may be applying one at the same
        time."""
        await self.sandbox.clock.advance(UNDO)
        await self.sandbox.work(advance_clock=False)
        while await value(self.sandbox, PENDING):
            await self.sandbox.work(advance_clock=False)

    async def expect_complaints(self, *answers: str) -> None:
        """Expect exactly these complaints; they may arrive shortly after the page has reported them."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            while len(self.complaints) < len(answers):  # noqa: ASYNC110  (it happens in the browser)
                await asyncio.sleep(0.01)
        assert len(self.complaints) == len(answers), self.complaints
        assert all(any(answer in reported for reported in self.complaints) for answer in answers), self.complaints
        self.complaints.clear()


@asynccontextmanager
async def open_screen(database: Database, *, development: bool = True, application: App = app) -> AsyncIterator[Screen]:
    settings = Settings(port=0, dev_name=DEVELOPER)
    listening = bind_socket(settings, "127.0.0.1")
    async with sandbox(application, database) as made:
        server = make_server(application, made.client, settings, dev_token=TOKEN if development else None)
        async with run_server(server, listening, settings):
            (browser,) = _open
            try:
                yield Screen(browser, made, get_address(listening), server, TOKEN if development else None)
            finally:
                for context in browser.contexts:
                    await context.close()
