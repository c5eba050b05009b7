from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from retoma.store.database import Database
from tests.browser.screen import Screen, a_browser, a_screen
from tests.conftest import empty


@pytest.fixture(scope="session", autouse=True)
async def browser() -> AsyncIterator[None]:
    async with a_browser():
        yield


@pytest.fixture
async def screen(database: Database) -> AsyncIterator[Screen]:
    """A browser before a server of its own, that fails the test if a page breaks its own policy."""
    await empty(database)
    async with a_screen(database) as made:
        yield made
        assert made.complaints == []
