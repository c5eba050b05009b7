from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest

from retoma.store.database import Database
from retoma.store.statements import Statement
from tests.conftest import empty
from tests.server.api import Api, an_api

OpenApi = Callable[..., AbstractAsyncContextManager[Api]]


@pytest.fixture
async def open_api(database: Database) -> OpenApi:
    """`open_api(scopes=, development=, ...)`: a server on an empty database."""
    await empty(database)
    return partial(an_api, database)


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every row that a statement gives from now on, as text."""
    rows: list[str] = []
    fetch = Database.fetch

    async def noted(self: Database, statement: Statement, **values: Any) -> Any:
        found = await fetch(self, statement, **values)
        rows.extend(map(str, found))
        return found

    monkeypatch.setattr(Database, "fetch", noted)
    return rows


@pytest.fixture
async def api(open_api: OpenApi) -> AsyncIterator[Api]:
    async with open_api() as made:
        yield made
