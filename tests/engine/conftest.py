from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.engine.builders import open_links


@pytest.fixture(autouse=True)
async def close_links() -> AsyncIterator[None]:
    """However a test ends, its connections do not trouble the next one."""
    yield
    while open_links:
        await open_links.pop().close()
