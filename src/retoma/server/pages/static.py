"""Serve the stylesheets and scripts of Retoma and of the application, without a login."""

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
from retoma.server.pages.page_context import HEADERS, PageContext

MEDIA_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


def _read_files(found: Iterable[Traversable]) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in found if file.name.rpartition(".")[2] in MEDIA_TYPES}


_FILES = _read_files((files("retoma.server") / "static").iterdir())


async def serve_file(context: PageContext) -> Response:
    return _respond(context, _FILES)


async def serve_application_file(context: PageContext) -> Response:
    name = context.request.path_params["application"]
    folder = next((each.static for each in context.services.applications if each.name == name), None)
    return _respond(context, {} if folder is None else _read_application_files(folder))


@cache
def _read_application_files(folder: Path) -> dict[str, bytes]:
    """Read the files once: a name in a request is looked up here and never becomes a path."""
    return _read_files(folder.iterdir())


def _respond(context: PageContext, files_by_name: dict[str, bytes]) -> Response:
    name = context.request.path_params["name"]
    if name not in files_by_name:
        raise NotFound(context.gettext("This file does not exist."))
    tag = f'"{hashlib.sha256(files_by_name[name]).hexdigest()[:16]}"'
    headers = {**HEADERS, "ETag": tag, "Cache-Control": "no-cache"}
    if context.request.headers.get("if-none-match", "").removeprefix("W/") == tag:
        return Response(status_code=304, headers=headers)
    return Response(files_by_name[name], headers=headers, media_type=MEDIA_TYPES[name.rpartition(".")[2]])


PAGES = (
    Page("/static/{name}", serve_file, is_public=True),
    Page("/static/apps/{application}/{name}", serve_application_file, is_public=True),
)
