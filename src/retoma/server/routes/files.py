"""Files that the data of a run names."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Path
from starlette.responses import Response, StreamingResponse

from retoma.define.file import File
from retoma.errors import NotFound
from retoma.server.callers import Caller, caller
from retoma.server.problems import documented
from retoma.server.routes.runs import own

router = APIRouter(tags=["files"])
Reader = Annotated[Caller, caller("runs:read")]
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="The SHA-256 of the content.")]
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The content.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    **documented(404),
}
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}/[a-z0-9][a-z0-9.+-]{0,60}")
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f/\\]")


@router.get(
    "/runs/{run:uuid}/files/{digest}",
    summary="Fetch a file that a run's data names",
    response_class=Response,
    responses=_ANSWERS,
)
async def fetch(run: UUID, digest: Digest, by: Reader) -> Response:
    await own(by, run)
    file = await by.client.file(run, digest)
    kept = None if by.client.app is None else by.client.app.files
    opened = None if kept is None else await kept.opened(file)
    if opened is None:
        raise NotFound(f"run {run} names this file, but its content is not kept here")
    return StreamingResponse(opened.chunks, 200, _headers(file, opened.size), _media_type(file))


def _headers(file: File, size: int) -> dict[str, str]:
    """Whatever is in it, a browser saves it and runs nothing of it."""
    name = _NOT_IN_NAMES.sub("_", file.name)[-200:] or file.file
    return {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Length": str(size),
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
    }


def _media_type(file: File) -> str:
    return file.media_type if _MEDIA_TYPE.fullmatch(file.media_type) else "application/octet-stream"
