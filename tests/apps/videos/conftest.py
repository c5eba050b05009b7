from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retoma.store.database import Database
from tests.apps.videos.house import House, a_house
from tests.conftest import empty


@pytest.fixture
async def house(database: Database, tmp_path: Path) -> AsyncIterator[House]:
    """The workflow on an empty database; the channel `financas` wants videos of 25 seconds."""
    await empty(database)
    async with a_house(database, tmp_path) as made:
        yield made
