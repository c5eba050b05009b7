from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from retoma.store.database import Database
from tests.apps.videos.pages.video_pages import VideoPages, running_video_pages
from tests.conftest import empty_database

OpenVideoPages = Callable[..., AbstractAsyncContextManager[VideoPages]]


@pytest.fixture
async def open_video_pages(database: Database, tmp_path: Path) -> OpenVideoPages:
    """`open_video_pages(says)`: on an empty database."""
    await empty_database(database)
    return lambda says="plainly": running_video_pages(database, tmp_path, says)


@pytest.fixture
async def video_pages(open_video_pages: OpenVideoPages) -> AsyncIterator[VideoPages]:
    async with open_video_pages() as made:
        yield made
