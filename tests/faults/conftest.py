from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retoma.store.database import Database
from retoma.testing import fresh_database
from retoma.worker import poller
from tests.conftest import empty
from tests.faults.stage import LEASE, Stage, on_stage


@pytest.fixture(scope="session")
async def real_time() -> AsyncIterator[Database]:
    """A database whose clock nobody sets."""
    async with fresh_database() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where steps write, also those that run in this process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("CHAOS_HURRY", "1")
    monkeypatch.setattr(poller, "LEASE", LEASE)
    return tmp_path


@pytest.fixture
async def stage(real_time: Database, folder: Path) -> AsyncIterator[Stage]:
    await empty(real_time)
    async with on_stage(real_time, folder) as made:
        yield made
