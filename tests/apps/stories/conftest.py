from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retoma.store.database import Database
from tests.apps.stories.story_app import StoryApp, patch_media, running_story_app
from tests.conftest import empty_database


@pytest.fixture
async def story_app(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StoryApp]:
    """Stories on an empty database, without rendering or speaking."""
    await empty_database(database)
    patch_media(monkeypatch)
    async with running_story_app(database, tmp_path) as made:
        yield made
