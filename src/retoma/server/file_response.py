"""Send a stored file as a response, whole or as the byte range that a player requests."""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from retoma.define.file import File
from retoma.errors import NotFound
from retoma.files import FileStore
from retoma.server.problems import Problem
from retoma.settings import Settings

_MEDIA_TYPE_PATTERN = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}/[a-z0-9][a-z0-9.+-]{0,60}")
_FORBIDDEN_IN_NAMES = re.compile(r"[\x00-\x1f\x7f/\\]")
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


async def send_file(files: FileStore | None, file: File, range_header: str | None) -> Response:
    """Return the file, or the part that the `Range` header selects.

    Raise NotFound if the content is not in the store, and a Problem (416) if the range is outside of the file.
    """
    size = file.size if files is not None and await files.has(file) else None
    part = None if size is None else parse_range(range_header, size)
    opened = None if files is None or size is None else await files.open_file(file, part)
    if opened is None:
        raise NotFound(f"the content of file {file.file} is not in the file store")
    headers = _build_headers(file, opened.size)
    if part is not None:
        headers["Content-Range"] = f"bytes {part[0]}-{part[1] - 1}/{size}"
    return StreamingResponse(opened.chunks, 200 if part is None else 206, headers, _safe_media_type(file))


def get_public_url(request: Request) -> str:
    """Return RETOMA_PUBLIC_URL or, if it is not set, the base URL of this request."""
    settings: Settings = request.app.state.settings
    return (settings.public_url or str(request.base_url)).rstrip("/")


def parse_range(range_header: str | None, size: int) -> tuple[int, int] | None:
    """Return the requested range as (start, end), end excluded, or None for the whole file.

    Multiple ranges and units other than bytes select the whole file, as RFC 9110 allows. Raise a Problem (416) if the
    range is outside of the file.
    """
    matched = _RANGE.fullmatch(range_header or "")
    if matched is None or matched[0] == "bytes=-":
        return None
    first, last = matched[1], matched[2]
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end:
        headers = {"Content-Range": f"bytes */{size}"}
        raise Problem(416, "RANGE_NOT_SATISFIABLE", f"the file has {size} bytes", headers=headers)
    return start, end


def _build_headers(file: File, size: int) -> dict[str, str]:
    """Return headers that make a browser save the file and never execute it; the dashboard's player may play it."""
    name = _FORBIDDEN_IN_NAMES.sub("_", file.name)[-200:] or file.file
    return {
        "Accept-Ranges": "bytes",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Length": str(size),
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
    }


def _safe_media_type(file: File) -> str:
    return file.media_type if _MEDIA_TYPE_PATTERN.fullmatch(file.media_type) else "application/octet-stream"
