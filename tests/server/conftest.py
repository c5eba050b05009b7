from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from functools import partial

import pytest

from retoma.server.buckets import Buckets
from retoma.store.database import Database
from tests.conftest import empty
from tests.server.api import Api, an_api

OpenApi = Callable[..., AbstractAsyncContextManager[Api]]


@pytest.fixture
def no_bucket_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the test is."""

    def as_it_was(buckets: Buckets, name: Hashable, now: float) -> float:
        return buckets._buckets.get(name, (buckets._room, now))[0]

    monkeypatch.setattr(Buckets, "_filled", as_it_was)


@pytest.fixture
async def open_api(database: Database) -> OpenApi:
    """`open_api(scopes=, development=, ...)`: a server on an empty database."""
    await empty(database)
    return partial(an_api, database)


@pytest.fixture
async def api(open_api: OpenApi) -> AsyncIterator[Api]:
    async with open_api() as made:
        yield made
