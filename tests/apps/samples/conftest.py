from __future__ import annotations

from tests.server.pages.conftest import open_api, open_pages

__all__ = ["open_api", "open_pages"]
