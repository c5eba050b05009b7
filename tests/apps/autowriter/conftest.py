from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retoma.store.database import Database
from tests.apps.autowriter.writer_app import WriterApp, open_writer_app
from tests.conftest import empty_database


@pytest.fixture
async def writer_app(database: Database, tmp_path: Path) -> AsyncIterator[WriterApp]:
    """AutoWriter on an empty database, with the blog `saude`."""
    await empty_database(database)
    async with open_writer_app(database, tmp_path) as opened:
        yield opened
