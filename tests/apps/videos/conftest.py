from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retoma.store.database import Database
from tests.apps.videos.video_app import VideoApp, running_video_app
from tests.conftest import empty_database


@pytest.fixture
async def video_app(database: Database, tmp_path: Path) -> AsyncIterator[VideoApp]:
    """The workflow on an empty database; the channel `financas` has videos of 25 seconds."""
    await empty_database(database)
    async with running_video_app(database, tmp_path) as made:
        yield made
