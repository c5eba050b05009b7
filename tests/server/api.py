"""A server in this process on a real database, and a client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from fastapi import FastAPI
from pydantic import BaseModel

from retoma import App, Items, Pipeline, Retry, Settings
from retoma.records import Scope
from retoma.server import make_server
from retoma.testing import Sandbox, sandbox
from tests.studio import STUDIO

ELSEWHERE = "203.0.113.9"
DEVELOPMENT_TOKEN = "token-of-this-start"
DEVELOPER = "Dora"
RUNS = (Scope.RUNS_READ, Scope.RUNS_WRITE)


class Brief(BaseModel):
    topic: str = "tea"
    scenes: int = 2


film = Pipeline("film", inputs=Brief, retry=Retry(0))


@film.step
def lines(topic: str, scenes: int) -> list[str]:
    return [f"{topic} {number}" for number in range(scenes)]


@film.each(lines)
def image(line: str) -> str:
    if line.startswith("bad"):
        raise ValueError("no paint left")
    return line.upper()


@film.step
def cut(image: Items[str]) -> str:
    return " ".join(image)


app = App("films", pipelines=[film], connections=[STUDIO])


class Api:
    """Calls a server with `key` unless a call overrides it. In development without scopes that is the token."""

    def __init__(self, server: FastAPI, sandbox: Sandbox, key: str | None, address: str, host: str) -> None:
        self.server = server
        self.sandbox = sandbox
        self.client = sandbox.client
        self.key = key
        transport = httpx2.ASGITransport(app=server, raise_app_exceptions=True, client=(address, 50_000))
        self._http = httpx2.AsyncClient(transport=transport, base_url=f"http://{host}")

    async def call(self, method: str, path: str, *, key: str | None = "", **options: Any) -> httpx2.Response:
        """An empty `key` is the usual one, None is none."""
        shown = self.key if key == "" else key
        headers = ({"X-API-Key": shown} if shown else {}) | options.pop("headers", {})
        return await self._http.request(method, path, headers=headers, **options)

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        return await self.call("GET", path, **options)

    async def post(self, path: str, **options: Any) -> httpx2.Response:
        return await self.call("POST", path, **options)

    async def start(self, topic: str = "tea", **options: Any) -> str:
        answer = await self.post("/api/v1/runs", json={"pipeline": "film", "input": {"topic": topic}}, **options)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def make_key(self, *scopes: str, tenant: str | None = None, name: str | None = None) -> str:
        name = name or f"{tenant} {' '.join(scopes)}"
        return (await self.client.api_keys.create(name, scopes, tenant=tenant)).secret

    def forget_cookies(self) -> None:
        self._http.cookies.clear()

    async def close(self) -> None:
        await self._http.aclose()


@asynccontextmanager
async def an_api(
    database: Any,
    *,
    application: App = app,
    scopes: Iterable[Scope] | None = (Scope.ADMIN,),
    address: str = ELSEWHERE,
    host: str = "api.example",
    development: bool = False,
    **settings: Any,
) -> AsyncIterator[Api]:
    async with sandbox(application, database) as made:
        token = DEVELOPMENT_TOKEN if development else None
        server = make_server(application, made.client, Settings(**{"dev_name": DEVELOPER} | settings), dev_token=token)
        key = token if scopes is None else (await made.client.api_keys.create("test", scopes)).secret
        api = Api(server, made, key, address, host)
        try:
            yield api
        finally:
            server.state.live.close()
            await api.close()
