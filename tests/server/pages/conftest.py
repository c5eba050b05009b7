from __future__ import annotations

import pytest

from tests.server.conftest import OpenApi, open_api
from tests.server.pages.visitor import OpenPages, visit_pages

__all__ = ["open_api"]


@pytest.fixture
def open_pages(open_api: OpenApi) -> OpenPages:
    """`open_pages(development=, ...)`: pages on an empty database, and someone who visits them."""
    return visit_pages(open_api)
