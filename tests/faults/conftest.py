from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retoma.store.database import Database
from retoma.testing import fresh_database
from retoma.webhooks import sender
from retoma.worker import poller
from tests.conftest import empty
from tests.faults.stage import LEASE, Stage, on_stage


@pytest.fixture(scope="session")
async def real_time() -> AsyncIterator[Database]:
    """A database whose clock nobody sets."""
    async with fresh_database() as made:
        yield made


@pytest.fixture
async def stage(real_time: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    # Steps that run in this process write into the ledger of the test, too.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("CHAOS_HURRY", "1")
    for module in (poller, sender):
        monkeypatch.setattr(module, "LEASE", LEASE)
    await empty(real_time)
    async with on_stage(real_time, tmp_path) as made:
        yield made
