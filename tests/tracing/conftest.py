from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.conftest import real_time_database, terminal
from tests.server.conftest import open_api
from tests.tracing.collector import Collector, collector

__all__ = ["open_api", "real_time_database", "terminal"]


@pytest.fixture
def received() -> Iterator[Collector]:
    """A collector that is running."""
    with collector() as made:
        yield made
