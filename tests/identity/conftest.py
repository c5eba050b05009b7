from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.identity.provider import Provider, run_provider
from tests.server.conftest import frozen_rate_limit, open_api

__all__ = ["frozen_rate_limit", "open_api"]


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    """A real OpenID provider. Tests of a module share it, so each uses accounts of its own."""
    with run_provider(tmp_path_factory.mktemp("provider")) as running:
        yield running
