from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from retoma_apps.providers.gpu.runpod import RunPodHost, RunPodSettings
from standins.gpu import StandIn
from standins.server import serve_app
from tests.apps.providers.gpu.file_server import FileServer

KEY = "rpa_CANARY1234567890"


class Switch:
    """One server for all tests; each puts its own application behind it."""

    app: ASGIApp
    origin: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


@pytest.fixture(scope="session")
async def switch() -> AsyncIterator[Switch]:
    made = Switch()
    async with serve_app(made, "127.0.0.1", 0) as made.origin:
        yield made


@pytest.fixture
async def standin(switch: Switch) -> StandIn:
    made = StandIn(workers=2, manual=True, key=KEY)
    switch.app = made.app
    return made


@pytest.fixture
async def base_url(switch: Switch, standin: StandIn) -> str:
    return f"{switch.origin}/v2"


@pytest.fixture
async def runpod(base_url: str) -> AsyncIterator[RunPodHost]:
    host = RunPodHost(settings_for(base_url))
    yield host
    await host.close()


def settings_for(base_url: str, **changed: Any) -> RunPodSettings:
    options: dict[str, Any] = {"api_key": SecretStr(KEY), "base_url": base_url, "endpoint_id": "pod"} | changed
    return RunPodSettings(_env_file=None, **options)


def img2vid(*ids: str) -> dict[str, Any]:
    images = [{"id": each, "image_url": f"https://example.com/{each}.png", "duracao": 1} for each in ids or ("1",)]
    return {"prefix": "gpu/job/1/", "images": images}


async def submit(host: RunPodHost, *ids: str, key: str = "key", **options: Any) -> str:
    options = {"timeout": timedelta(minutes=10)} | options
    return await host.submit("img2vid", img2vid(*ids), key=key, **options)


@pytest.fixture
async def file_server(switch: Switch) -> FileServer:
    switch.app = made = FileServer(switch.origin)
    return made
