from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from functools import partial

import pytest

from retoma.server.rate_limit import RateLimiter
from retoma.store.database import Database
from tests.conftest import empty_database
from tests.server.api import Api, an_api

OpenApi = Callable[..., AbstractAsyncContextManager[Api]]


@pytest.fixture
def frozen_rate_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the test is."""

    def as_it_was(buckets: RateLimiter, name: Hashable, now: float) -> float:
        return buckets._buckets.get(name, (buckets._capacity, now))[0]

    monkeypatch.setattr(RateLimiter, "_refill", as_it_was)


@pytest.fixture
async def open_api(database: Database) -> OpenApi:
    """`open_api(scopes=, development=, ...)`: a server on an empty database."""
    await empty_database(database)
    return partial(an_api, database)


@pytest.fixture
async def api(open_api: OpenApi) -> AsyncIterator[Api]:
    async with open_api() as made:
        yield made
