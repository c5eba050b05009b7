from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.engine.builders import open_lanes


@pytest.fixture(autouse=True)
async def lanes_are_closed() -> AsyncIterator[None]:
    """However a test ends, its connections do not trouble the next one."""
    yield
    while open_lanes:
        await open_lanes.pop().close()
