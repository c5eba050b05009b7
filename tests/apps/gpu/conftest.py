from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from retoma.store.database import Database
from tests.apps.gpu.studio import Studio, a_studio
from tests.conftest import empty

OpenStudio = Callable[..., AbstractAsyncContextManager[Studio]]


@pytest.fixture
async def open_studio(database: Database, tmp_path: Path) -> OpenStudio:
    """`open_studio(...)`: the orchestrator on an empty database, with a stand-in of RunPod."""
    await empty(database)

    def opened(**options: object) -> AbstractAsyncContextManager[Studio]:
        return a_studio(database, tmp_path, **options)  # type: ignore[arg-type]

    return opened


@pytest.fixture
async def studio(open_studio: OpenStudio) -> AsyncIterator[Studio]:
    async with open_studio() as made:
        yield made
