"""Pexels' video search, with injectable faults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from retoma_apps.providers.footage.offline import OfflineFootage
from retoma_apps.providers.footage.port import FoundClip
from standins.faults import METADATA, PAGE
from standins.faults import Faults as CommonFaults
from standins.server import Routes, StandInServer

_LIMIT = 20_000
_MOST = 80


@dataclass
class Faults(CommonFaults):
    retry_after: float | None = None
    """Pexels does not say; a number is for proxies that do."""
    empty: int = 0
    """Searches that find nothing."""
    private_links: int = 0
    """Searches whose files link to a cloud's metadata address."""
    not_video: int = 0
    """Files that are a page instead of a video."""
    missing_files: int = 0
    left: int = _LIMIT
    """Requests left this month."""


class StandIn(StandInServer[Faults]):
    """`footage` draws the files; pass one with tiny frames for tests."""

    def __init__(self, *, key: str | None = None, footage: OfflineFootage | None = None) -> None:
        super().__init__(Faults(), key=key)
        self.requests: list[dict[str, str]] = []
        """Parameters of all accepted searches."""
        self.file_headers: list[dict[str, str]] = []
        """Headers of all requests for files."""
        self._footage = footage or OfflineFootage()
        self._clips: dict[int, FoundClip] = {}

    def variables(self, base_url: str) -> dict[str, str]:
        return {"PEXELS_BASE_URL": base_url, "RETOMA_ALLOW_HOSTS": "127.0.0.1"}  # its links lead to itself

    def tally(self) -> dict[str, Any]:
        return {"requests": len(self.requests), "files": len(self.file_headers), **super().tally()}

    def _routes(self) -> Routes:
        yield "GET", "/v1/videos/search", self._search
        yield "GET", "/files/{number}.{kind}", self._file

    async def _search(self, request: Request) -> Response:
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        asked = dict(request.query_params)
        if not asked.get("query"):
            return _failure(400, "No query")
        self.requests.append(asked)
        self.faults.left -= 1
        answer = JSONResponse(await self._find_videos(asked, str(request.base_url)), headers=self._limits())
        return await self._deliver(answer)

    async def _refusal(self, request: Request) -> Response | None:
        given = request.headers.get("authorization", "")
        if not self._accepts(given):
            return _failure(401, f"Unauthorized: {given}")
        return await self._refuse(_failure(429, "Rate limit exceeded"), _failure(500, "Something went wrong"))

    async def _find_videos(self, asked: dict[str, str], origin: str) -> dict[str, Any]:
        most = min(int(asked.get("per_page", 15)), _MOST)
        founds = await self._footage.search(asked["query"], language="en", seconds=10, limit=most)
        if self._strikes("empty"):
            founds = []
        root = METADATA if self._strikes("private_links") else origin
        videos = [self._video(found, root) for found in founds]
        return {"page": 1, "per_page": most, "total_results": len(videos), "url": "", "videos": videos}

    def _video(self, found: FoundClip, root: str) -> dict[str, Any]:
        number = int(found.id.rpartition("-")[2][:12], 16)
        self._clips[number] = found
        slug = "-".join(found.tags)
        return {
            "id": number,
            "width": found.width,
            "height": found.height,
            "url": f"https://www.pexels.com/video/{slug}-{number}/",
            "image": f"{root}files/{number}.jpg",
            "full_res": None,
            "tags": [],
            "duration": max(round(found.seconds), 1),
            "user": {"id": 1, "name": "Ana Conceição", "url": "https://www.pexels.com/@ana"},
            "video_files": [
                _file(1, "uhd", 3840, 2160, f"{root}files/{number}.mp4"),
                _file(2, "hd", 1920, 1080, f"{root}files/{number}.mp4"),
                _file(3, "sd", 640, 360, f"{root}files/{number}.mp4"),
                _file(4, "hls", None, None, f"{root}files/{number}.m3u8") | {"file_type": "application/vnd.apple"},
            ],
            "video_pictures": [{"id": 1, "picture": f"{root}files/{number}.jpg", "nr": 0}],
        }

    async def _file(self, number: int, kind: str, request: Request) -> Response:
        self.file_headers.append(dict(request.headers))
        if self._strikes("missing_files") or (found := self._clips.get(number)) is None:
            return _failure(404, "Not found")
        if self._strikes("not_video"):
            return HTMLResponse(PAGE)
        with TemporaryDirectory() as made:
            path = Path(made) / "file"
            await (self._footage.fetch if kind == "mp4" else self._footage.fetch_thumbnail)(found, path)
            return Response(path.read_bytes(), media_type="video/mp4" if kind == "mp4" else "image/jpeg")

    def _limits(self) -> dict[str, str]:
        return {"X-Ratelimit-Limit": str(_LIMIT), "X-Ratelimit-Remaining": str(max(self.faults.left, 0))}


def _file(number: int, quality: str, width: int | None, height: int | None, link: str) -> dict[str, Any]:
    size = {"width": width, "height": height, "fps": 30.0}
    return {"id": number, "quality": quality, "file_type": "video/mp4", "link": link, **size}


def _failure(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)
