from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from retoma.store.database import Database
from tests.apps.classifier.office import Office, an_office
from tests.conftest import empty

OpenOffice = Callable[..., AbstractAsyncContextManager[Office]]


@pytest.fixture
async def open_office(database: Database, tmp_path: Path) -> OpenOffice:
    """`open_office(offline=...)`: the classifier on an empty database, with a stand-in of OpenRouter."""
    await empty(database)

    def opened(**options: object) -> AbstractAsyncContextManager[Office]:
        return an_office(database, tmp_path, **options)  # type: ignore[arg-type]

    return opened


@pytest.fixture
async def office(open_office: OpenOffice) -> AsyncIterator[Office]:
    async with open_office() as made:
        yield made
