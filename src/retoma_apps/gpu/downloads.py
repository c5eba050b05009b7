"""`/files/...`: outputs that are kept in a folder of this machine. Whoever knows a job's files may fetch them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from retoma.files import Files, FileSettings, files_of
from retoma.server import Problem, asked_part, binary, documented, public

_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: binary("The whole file."),
    206: binary("The part that `Range` asks for."),
    416: {"description": "There is nothing of the file in that range."},
    **documented(404, 422),
}
OUTPUTS = "gpu/"  # what else is kept in the same place is not for everyone


def downloads(settings: FileSettings) -> APIRouter:
    router = APIRouter(tags=["gpu"], dependencies=[public])
    kept: list[Files] = []

    @router.get("/files/{key:path}", summary="Fetch an output", response_class=Response, responses=_ANSWERS)
    async def download_output(key: str, request: Request) -> Response:
        return await sent(key, request.headers.get("range"))

    @router.head(
        "/files/{key:path}", summary="Look at an output", response_class=Response, responses=documented(404, 422)
    )
    async def inspect_output(key: str) -> Response:
        whole = await sent(key, None)
        return Response(headers=dict(whole.headers))

    async def sent(key: str, asked: str | None) -> Response:
        if not key.startswith(OUTPUTS):
            raise _missing()
        if not kept:
            kept.append(files_of(settings))
        return await _sent(kept[0], key, asked)

    return router


async def _sent(files: Files, key: str, asked: str | None) -> Response:
    size = await files.size(key)
    part = None if size is None else asked_part(asked, size)
    opened = await files.open(key, part)
    if opened is None:
        raise _missing()
    headers = {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=3600",
        "Content-Disposition": f'attachment; filename="{key.rpartition("/")[2]}"',
        "Content-Length": str(opened.size),
        "X-Content-Type-Options": "nosniff",
    }
    if part is not None:
        headers["Content-Range"] = f"bytes {part[0]}-{part[1] - 1}/{size}"
    return StreamingResponse(opened.chunks, 200 if part is None else 206, headers, opened.media_type)


def _missing() -> Problem:
    return Problem(404, "NOT_FOUND", "there is no such file", error="File not found")
