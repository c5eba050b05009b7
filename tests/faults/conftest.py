from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retoma.store.database import Database
from retoma.testing import fresh_database
from retoma.worker import external_work_poller
from tests.conftest import empty_database
from tests.faults.testbed import LEASE, FaultEnvironment, open_testbed


@pytest.fixture(scope="session")
async def real_time_database() -> AsyncIterator[Database]:
    """A database whose clock nobody sets."""
    async with fresh_database() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where steps write, also those that run in this process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("CHAOS_HURRY", "1")
    monkeypatch.setattr(external_work_poller, "LEASE", LEASE)
    return tmp_path


@pytest.fixture
async def testbed(real_time_database: Database, folder: Path) -> AsyncIterator[FaultEnvironment]:
    await empty_database(real_time_database)
    async with open_testbed(real_time_database, folder) as made:
        yield made
