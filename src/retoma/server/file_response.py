"""A kept file as the answer to a request: whole, or the part of it that a player asks for."""

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
    """`asked` is the header `Range`. Raises NotFound if the content is not kept here, and a Problem (416) if nothing of
    it is in the range."""
    size = file.size if files is not None and await files.has(file) else None
    part = None if size is None else parse_range(range_header, size)
    opened = None if files is None or size is None else await files.open_file(file, part)
    if opened is None:
        raise NotFound(f"the content of the file {file.file} is not kept here")
    headers = _build_headers(file, opened.size)
    if part is not None:
        headers["Content-Range"] = f"bytes {part[0]}-{part[1] - 1}/{size}"
    return StreamingResponse(opened.chunks, 200 if part is None else 206, headers, _safe_media_type(file))


def get_public_url(request: Request) -> str:
    """Where callers reach this server: RETOMA_PUBLIC_URL, or as this request came."""
    settings: Settings = request.app.state.settings
    return (settings.public_url or str(request.base_url)).rstrip("/")


def parse_range(range_header: str | None, size: int) -> tuple[int, int] | None:
    """What the header `Range` asks for of so many bytes: from and to, the last byte not included; None for all of it.

    Several ranges at once, and what is no range of bytes, are answered with the whole file, as the standard allows.
    Raises a Problem (416) if nothing is in the range.
    """
    matched = _RANGE.fullmatch(range_header or "")
    if matched is None or matched[0] == "bytes=-":
        return None
    first, last = matched[1], matched[2]
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end:
        there = {"Content-Range": f"bytes */{size}"}
        raise Problem(416, "RANGE_NOT_SATISFIABLE", f"the file has {size} bytes", headers=there)
    return start, end


def _build_headers(file: File, size: int) -> dict[str, str]:
    """Whatever is in it, a browser saves it and runs nothing of it; a player of ours may play it."""
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
