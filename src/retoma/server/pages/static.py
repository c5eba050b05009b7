"""The stylesheet and the scripts, which anyone may read."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from starlette.responses import Response

from retoma.errors import NotFound
from retoma.server.pages.page import Page
from retoma.server.pages.visit import HEADERS, Visit

TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_FILES = {
    file.name: file.read_bytes()
    for file in (files("retoma.server") / "static").iterdir()
    if file.name.rpartition(".")[2] in TYPES
}


async def show(visit: Visit) -> Response:
    name = visit.request.path_params["name"]
    if name not in _FILES:
        raise NotFound(visit.say("no file"))
    tag = f'"{hashlib.sha256(_FILES[name]).hexdigest()[:16]}"'
    headers = {**HEADERS, "ETag": tag, "Cache-Control": "no-cache"}
    if visit.request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(_FILES[name], headers=headers, media_type=TYPES[name.rpartition(".")[2]])


PAGES = (Page("/static/{name}", show, is_open=True),)
