"""The stylesheet and the scripts, ours and an application's own, which anyone may read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from starlette.responses import Response

from retoma.errors import NotFound
from retoma.server.pages.page import Page
from retoma.server.pages.visit import HEADERS, Visit

TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


def _read(found: Iterable[Traversable]) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in found if file.name.rpartition(".")[2] in TYPES}


_FILES = _read((files("retoma.server") / "static").iterdir())


async def show(visit: Visit) -> Response:
    return _answer(visit, _FILES)


async def show_own(visit: Visit) -> Response:
    app = visit.site.app
    return _answer(visit, {} if app is None or app.static is None else _own_files(app.static))


@cache
def _own_files(folder: Path) -> dict[str, bytes]:
    """Read once: what a request names is looked up here, and never becomes a path."""
    return _read(folder.iterdir())


def _answer(visit: Visit, known: dict[str, bytes]) -> Response:
    name = visit.request.path_params["name"]
    if name not in known:
        raise NotFound(visit.say("no file"))
    tag = f'"{hashlib.sha256(known[name]).hexdigest()[:16]}"'
    headers = {**HEADERS, "ETag": tag, "Cache-Control": "no-cache"}
    if visit.request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(known[name], headers=headers, media_type=TYPES[name.rpartition(".")[2]])


PAGES = (Page("/static/{name}", show, is_open=True), Page("/static/app/{name}", show_own, is_open=True))
