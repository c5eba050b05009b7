from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from retoma.store.database import Database
from tests.browser.screen import Screen, a_screen
from tests.conftest import empty


@pytest.fixture
async def screen(database: Database) -> AsyncIterator[Screen]:
    """A browser on a server of its own, that fails the test if a page breaks its own policy."""
    await empty(database)
    async with a_screen(database) as made:
        yield made
        assert made.complaints == []
