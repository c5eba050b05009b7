"""A visitor with a browser, as far as the server can tell."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import UUID

import httpx2

from retoma import Webhook
from tests.receiver import receiver, respond_with
from tests.server.api import DEVELOPMENT_TOKEN, Api
from tests.server.conftest import OpenApi
from tests.server.people import ADMINISTRATOR, PASSWORD, ensure_administrator

OpenPages = Callable[..., AbstractAsyncContextManager["Visitor"]]
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


class Visitor:
    """Keeps cookies as a browser would; in development it has opened the printed address."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.client = api.client
        self.cookies: dict[str, str] = {}
        if api.key == DEVELOPMENT_TOKEN:
            self.cookies["retoma-dev-8765"] = DEVELOPMENT_TOKEN

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return self._keep_cookies(await self.api.get(path, key=None, headers=self._headers(headers)))

    async def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx2.Response:
        """Submit one of our forms, unless the headers say otherwise."""
        all_headers = self._headers(SAME_ORIGIN | headers)
        return self._keep_cookies(await self.api.post(path, key=None, data=fields, headers=all_headers))

    async def upload(self, path: str, fields: dict[str, str], files: dict[str, tuple[str, bytes]]) -> httpx2.Response:
        """Submit one of our forms with files."""
        headers = self._headers(SAME_ORIGIN)
        return self._keep_cookies(await self.api.post(path, key=None, data=fields, files=files, headers=headers))

    async def log_in(self, password: str = PASSWORD, email: str = ADMINISTRATOR, **fields: str) -> httpx2.Response:
        """Log in, by default as Ana, who administers all tenants."""
        if email == ADMINISTRATOR:
            await ensure_administrator(self.client)
        return await self.post("/login", {"email": email, "password": password, **fields})

    async def token(self) -> str:
        """Return the CSRF token of the forms."""
        started = await self.client.start("film", {})
        return token_of(await self.get(f"/runs/{started.id}"))

    def _headers(self, extra: dict[str, str]) -> dict[str, str]:
        self.api.forget_cookies()
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        named = {name.replace("_", "-"): value for name, value in extra.items() if value}
        return named | ({"Cookie": cookie} if cookie else {})

    def _keep_cookies(self, answer: httpx2.Response) -> httpx2.Response:
        for line in answer.headers.get_list("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
            if "Max-Age=0" in line:
                del self.cookies[name]
        return answer


def token_of(answer: httpx2.Response) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', answer.text)
    assert found, answer.text
    return found[1]


def visible_text(answer: httpx2.Response) -> str:
    """Return its text as people read it. A time is part of its sentence."""
    return html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"</?time[^>]*>", "", answer.text)))


def visit_pages(open_api: OpenApi) -> OpenPages:
    @asynccontextmanager
    async def opened(*, development: bool = True, **options: Any) -> AsyncIterator[Visitor]:
        if development:
            options = {"address": "127.0.0.1", "host": "127.0.0.1:8765"} | options
        async with open_api(scopes=None, development=development, **options) as api:
            yield Visitor(api)

    return opened


async def make_dead_delivery(visitor: Visitor, tenant: str = "default", answer: bytes = b"no") -> UUID:
    """A webhook that was tried once, answered with 500, and given up."""
    async with receiver(respond_with(500, answer)) as listener:
        webhook = Webhook(listener.url, ("run.started",), retries=0)
        run = await visitor.client.start("film", {}, tenant=tenant, webhook=webhook)
        await visitor.api.sandbox.send_webhooks()
    (delivery,) = await visitor.client.webhooks.list_deliveries(run=run.id)
    return delivery.id
