from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from retoma.store.database import Database
from tests.apps.gpu.gpu_app import GpuApp, running_gpu_app
from tests.conftest import empty_database

OpenGpuApp = Callable[..., AbstractAsyncContextManager[GpuApp]]


@pytest.fixture
async def open_gpu_app(database: Database, tmp_path: Path) -> OpenGpuApp:
    """`open_gpu_app(...)`: the orchestrator on an empty database, with a stand-in for RunPod."""
    await empty_database(database)

    def opened(**options: object) -> AbstractAsyncContextManager[GpuApp]:
        return running_gpu_app(database, tmp_path, **options)  # type: ignore[arg-type]

    return opened


@pytest.fixture
async def gpu_app(open_gpu_app: OpenGpuApp) -> AsyncIterator[GpuApp]:
    async with open_gpu_app() as made:
        yield made
