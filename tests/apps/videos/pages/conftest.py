from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from retoma.store.database import Database
from tests.apps.videos.pages.canned import Desk, a_desk
from tests.conftest import empty

OpenDesk = Callable[..., AbstractAsyncContextManager[Desk]]


@pytest.fixture
async def open_desk(database: Database, tmp_path: Path) -> OpenDesk:
    """`open_desk(says)`: on an empty database."""
    await empty(database)
    return lambda says="plainly": a_desk(database, tmp_path, says)


@pytest.fixture
async def desk(open_desk: OpenDesk) -> AsyncIterator[Desk]:
    async with open_desk() as made:
        yield made
