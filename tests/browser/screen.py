"""Chromium before a server that listens: what people really see and press."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fastapi import FastAPI
from playwright.async_api import Browser, Page, async_playwright

from retoma import App, Settings
from retoma.cli.listening import address, bound, serving
from retoma.server import make_server
from retoma.store.database import Database
from retoma.testing import Sandbox, sandbox
from tests.server.api import app
from tests.server.pages.visitor import HASH

_open: list[Browser] = []


@asynccontextmanager
async def a_browser() -> AsyncIterator[None]:
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
    """`complaints` are what the browser had to say: errors of scripts, and what the policy forbade."""

    browser: Browser
    sandbox: Sandbox
    address: str
    server: FastAPI
    complaints: list[str] = field(default_factory=list)

    async def open(self, path: str, width: int = 1440, scheme: str = "light", language: str = "en") -> Page:
        made = await self.browser.new_page(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            locale=language,
        )
        made.on("console", lambda message: self.complaints.append(message.text))
        made.on("pageerror", lambda error: self.complaints.append(str(error)))
        await made.goto(f"{self.address}{path}")
        return made


@asynccontextmanager
async def a_screen(database: Database, *, development: bool = True, application: App = app) -> AsyncIterator[Screen]:
    settings = Settings(port=0, admin_password_hash=HASH)
    listening = bound(settings, "127.0.0.1")
    async with sandbox(application, database) as made:
        server = make_server(application, made.client, settings, development=development)
        async with serving(server, listening, settings):
            (browser,) = _open
            try:
                yield Screen(browser, made, address(listening), server)
            finally:
                for context in browser.contexts:
                    await context.close()
