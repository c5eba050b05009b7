"""`/files/...`: outputs stored in a local folder. Anyone who knows an output's address may download it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from retoma.files import FileSettings, FileStore, create_file_store
from retoma.server import Problem, document_binary, document_problems, parse_range, public

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: document_binary("The whole file."),
    206: document_binary("The part of the file that `Range` requests."),
    416: {"description": "The range is outside the file."},
    **document_problems(404, 422),
}
OUTPUT_PREFIX = "gpu/"  # other files in the same store are not public


def create_download_router(settings: FileSettings) -> APIRouter:
    router = APIRouter(tags=["gpu"], dependencies=[public])
    stores: list[FileStore] = []

    @router.get("/files/{key:path}", summary="Download an output", response_class=Response, responses=_RESPONSES)
    async def download_output(key: str, request: Request) -> Response:
        return await send(key, request.headers.get("range"))

    @router.head(
        "/files/{key:path}", summary="Inspect an output", response_class=Response, responses=document_problems(404, 422)
    )
    async def inspect_output(key: str) -> Response:
        whole = await send(key, None)
        return Response(headers=dict(whole.headers))

    async def send(key: str, range_header: str | None) -> Response:
        if not key.startswith(OUTPUT_PREFIX):
            raise _file_not_found()
        if not stores:
            stores.append(create_file_store(settings))
        return await _send_file(stores[0], key, range_header)

    return router


async def _send_file(files: FileStore, key: str, range_header: str | None) -> Response:
    size = await files.get_size(key)
    part = None if size is None else parse_range(range_header, size)
    opened = await files.open_key(key, part)
    if opened is None:
        raise _file_not_found()
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


def _file_not_found() -> Problem:
    return Problem(404, "NOT_FOUND", "there is no such file", error="File not found")
