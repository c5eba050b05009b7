"""The page of AutoWriter, against its code."""

from __future__ import annotations

import re
from pathlib import Path

from tests.apps.autowriter.writer_app import WriterApp
from tests.server.test_authorisation import ROUTES, list_all_routes

PAGE = Path(__file__).resolve().parents[3] / "docs" / "applications" / "autowriter.md"
ROW = re.compile(r"^\| `([A-Z]+ /[^`?]+)[^`]*` \| (?:`([a-z:]+)`|none) \|", re.MULTILINE)


async def test_the_page_lists_every_route_with_its_scope(writer_app: WriterApp) -> None:
    shared = {str(route) for route in ROUTES}
    scopes = {
        re.sub(r"\{\w+\}", "{id}", str(route)): (route.need.scope if route.need else None) or ""
        for route in list_all_routes(writer_app.api.server)
        if str(route) not in shared
    }
    assert dict(ROW.findall(PAGE.read_text())) == scopes
