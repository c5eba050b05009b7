from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

import pytest
from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from retoma_apps.providers.youtube import LocalChannel, VideoToPublish, mark_of
from retoma_apps.providers.youtube.settings import CHUNK_MULTIPLE, YouTubeSettings
from retoma_apps.providers.youtube.youtube import YouTube
from standins.server import serve_app
from standins.youtube import StandIn

REFRESH, SECRET = "1//refresh-CANARY", "GOCSPX-CANARY"
CONTENT = Random(6).randbytes(5 * CHUNK_MULTIPLE + 1000)
SIZE = len(CONTENT)
PNG = b"\x89PNG\r\n\x1a\n" + b"picture"
MARK = mark_of("run:upload::1")


class Switch:
    """One server for all tests; each puts its own application behind it."""

    app: ASGIApp
    origin: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


class WatchedCopy(LocalChannel):
    """Records the size of a copy after each chunk."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.done: list[int] = []

    def _add(self, part: bytes, copied: BinaryIO) -> None:
        super()._add(part, copied)
        self.done.append(copied.tell())


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 2, 4, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
async def switch() -> AsyncIterator[Switch]:
    made = Switch()
    async with serve_app(made, "127.0.0.1", 0) as made.origin:
        yield made


@pytest.fixture
async def standin(switch: Switch, clock: Clock) -> StandIn:
    made = StandIn(refresh_token=REFRESH, processing_seconds=60, now=clock)
    switch.app = made.app
    return made


@pytest.fixture
async def youtube(switch: Switch, standin: StandIn) -> AsyncIterator[YouTube]:
    made = YouTube(settings_for(switch.origin))
    yield made
    await made.close()


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film.mp4"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "thumbnail.png"
    path.write_bytes(PNG)
    return path


def settings_for(origin: str, **changed: Any) -> YouTubeSettings:
    options: dict[str, Any] = {
        "client_id": "client",
        "client_secret": SecretStr(SECRET),
        "refresh_token": SecretStr(REFRESH),
        "chunk_bytes": CHUNK_MULTIPLE,
        "backoff_seconds": 0,
        **StandIn.addresses(origin),
    }
    return YouTubeSettings(_env_file=None, **options | changed)


def make_video(**changed: Any) -> VideoToPublish:
    body: dict[str, Any] = {"title": "Renda fixa em 2026", "mark": MARK, "tags": ("finanças", "renda fixa")}
    return VideoToPublish(**body | changed)


def rewrite(path: Path, content: bytes) -> None:
    path.write_bytes(content)
