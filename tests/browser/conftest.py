from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from retoma.store.database import Database
from tests.browser.screen import Screen, open_browser, open_screen
from tests.conftest import empty_database
from tests.wordpress.fixtures import site, wordpress_sites

__all__ = ["site", "wordpress_sites"]


@pytest.fixture(scope="session", autouse=True)
async def browser() -> AsyncIterator[None]:
    async with open_browser():
        yield


@pytest.fixture
async def screen(database: Database) -> AsyncIterator[Screen]:
    """A browser with its own server; the test fails if a page violates its own policy."""
    await empty_database(database)
    async with open_screen(database) as made:
        yield made
        assert made.complaints == []
