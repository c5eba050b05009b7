from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retoma.store.database import Database
from retoma.testing import fresh_database
from tests.cli.terminal import FILM, Terminal
from tests.conftest import empty_database


@pytest.fixture(scope="session")
async def real_time_database() -> AsyncIterator[Database]:
    """A separate database from the one whose clock other tests set: real processes run in real time."""
    async with fresh_database() as made:
        yield made


@pytest.fixture
async def terminal(real_time_database: Database, tmp_path: Path) -> Terminal:
    """A shell in a folder with film.py, on an empty database."""
    await empty_database(real_time_database)
    (tmp_path / "film.py").write_text(FILM)
    return Terminal(tmp_path, {"RETOMA_DATABASE_URL": real_time_database.url})
