from __future__ import annotations

import pytest

from tests.server.conftest import OpenApi, open_api
from tests.server.pages.visitor import Opened, opened

__all__ = ["open_api"]


@pytest.fixture
def open_pages(open_api: OpenApi) -> Opened:
    """`open_pages(development=, ...)`: pages on an empty database, and someone who visits them."""
    return opened(open_api)
