"""YouTube's routes, with injectable faults."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from retoma_apps.providers.standin import Breakable, BreaksOff, Routes
from retoma_apps.providers.youtube.settings import CHUNK_MULTIPLE
from retoma_apps.providers.youtube.standin.store import Session, Video
from retoma_apps.providers.youtube.text_limits import LONGEST_DESCRIPTION, LONGEST_TITLE

UPLOADS = "UU-standin"
_SPAN = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_QUESTION = re.compile(r"bytes \*/(\d+)")

Answer = Callable[[Request], Awaitable[Response]]


@dataclass
class Faults:
    """Counts apply to the next requests and run down."""

    partial: int = 0
    """Chunks of which only half is accepted."""
    forgotten: int = 0
    """Chunks after which all data is lost: a 308 without a Range."""
    broken: int = 0
    """A 503 before anything is read."""
    broken_after: int = 0
    """A 503 after a chunk was accepted."""
    lost_replies: int = 0
    """Chunks that are accepted before the connection breaks."""
    lost_final: int = 0
    """The same, only for the last byte: the video exists, but its sender does not know."""
    garbled_final: int = 0
    """The last byte is answered with a proxy's HTML page."""
    refused_tokens: int = 0
    """A 401, as for an expired token."""
    rate_limited: int = 0
    retry_after: float | None = 7
    quota: bool = False
    upload_limit: bool = False
    forbidden: bool = False
    failure: str = ""
    """The processing error of the next videos, such as `codec`."""
    rejection: str = ""


class StandIn(Breakable[Faults]):
    """`now` is its clock; `on_chunk` receives the number of bytes in a session before the sender is answered."""

    def __init__(
        self,
        *,
        refresh_token: str | None = None,
        processing_seconds: float = 0.0,
        now: Callable[[], datetime] | None = None,
        on_chunk: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(Faults())
        self.sessions: dict[str, Session] = {}
        self.videos: dict[str, Video] = {}
        """Oldest first."""
        self.requests: Counter[str] = Counter()
        self.misplaced = 0
        """Chunks that did not begin where their session ended, or had an invalid size."""
        self.tokens: list[str] = []
        """All issued access tokens; the last one is valid."""
        self.page_size = 50
        self.on_chunk = on_chunk
        self._refresh_token = refresh_token
        self._processing = timedelta(seconds=processing_seconds)
        self._clock = now or (lambda: datetime.now(UTC))

    def variables(self, base_url: str) -> dict[str, str]:
        return {f"YOUTUBE_{name.upper()}": url for name, url in self.addresses(base_url).items()}

    @staticmethod
    def addresses(origin: str) -> dict[str, str]:
        """Return the addresses for YouTubeSettings."""
        return {
            "base_url": f"{origin}/youtube/v3",
            "upload_url": f"{origin}/upload/youtube/v3",
            "token_url": f"{origin}/token",
        }

    def forget_sessions(self) -> None:
        """Expire all sessions, as after a week: a request for one gets a 404."""
        self.sessions.clear()

    def _routes(self) -> Routes:
        yield "POST", "/token", self._token
        yield "POST", "/upload/youtube/v3/videos", self._guarded(self._begin)
        yield "PUT", "/upload/youtube/v3/videos", self._guarded(self._put)
        yield "POST", "/upload/youtube/v3/thumbnails/set", self._guarded(self._set_thumbnail)
        yield "GET", "/youtube/v3/videos", self._guarded(self._list_videos)
        yield "GET", "/youtube/v3/channels", self._guarded(self._list_channels)
        yield "GET", "/youtube/v3/playlistItems", self._guarded(self._list_items)
        yield "GET", "/standin/videos", self._show_videos

    def _guarded(self, answer: Answer) -> Answer:
        async def guarded(request: Request) -> Response:
            self.requests[f"{request.method} {request.url.path.rpartition('/')[2]}"] += 1
            return self._refusal(request) or await answer(request)

        return guarded

    def _refusal(self, request: Request) -> Response | None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not self.tokens or given != self.tokens[-1] or self._strikes("refused_tokens"):
            return _failure(401, "authError", "Invalid Credentials")
        if self._strikes("rate_limited"):
            return _failure(429, "rateLimitExceeded", "Too many requests", self._retry_after())
        if self._strikes("broken"):
            return _failure(503, "backendError", "Service unavailable")
        if self.faults.quota:
            return _failure(403, "quotaExceeded", "The request cannot be completed: quota exceeded")
        if self.faults.forbidden:
            return _failure(403, "forbidden", f"Forbidden for {given}")
        return None

    async def _token(self, request: Request) -> Response:
        self.requests["POST token"] += 1
        given = parse_qs((await request.body()).decode())
        if given.get("grant_type") != ["refresh_token"] or not given.get("client_secret"):
            return JSONResponse({"error": "invalid_request"}, 400)
        if self._refresh_token is not None and given.get("refresh_token") != [self._refresh_token]:
            return JSONResponse({"error": "invalid_grant", "error_description": "Token has been revoked."}, 400)
        self.tokens.append(f"ya29.{uuid4().hex}")
        return JSONResponse({"access_token": self.tokens[-1], "expires_in": 3599, "token_type": "Bearer"})

    async def _begin(self, request: Request) -> Response:
        resource, size = await request.json(), int(request.headers.get("x-upload-content-length", 0))
        if self.faults.upload_limit:
            return _failure(400, "uploadLimitExceeded", "The user has exceeded the number of videos they may upload.")
        if (wrong := _wrong(resource, size)) is not None:
            return _failure(400, wrong, f"The request metadata is refused: {wrong}")
        session = Session(uuid4().hex, resource, size)
        self.sessions[session.id] = session
        url = request.url.replace(query=f"uploadType=resumable&upload_id={session.id}")
        return Response(headers={"Location": str(url)})

    async def _put(self, request: Request) -> Response:
        session = self.sessions.get(request.query_params.get("upload_id", ""))
        if session is None:
            return _failure(404, "notFound", f"No such session: {request.url}")
        span = request.headers.get("content-range", "")
        if (asked := _QUESTION.fullmatch(span)) is not None:
            return self._state(session) if int(asked[1]) == session.size else _bad_span(span)
        content = await _sent(request)
        if not _fits(session, span):  # checked only now: of two concurrent senders, one is late
            self.misplaced += 1
            return _bad_span(span)
        return self._take(session, content)

    def _take(self, session: Session, content: bytes) -> Response:
        half = len(content) // 2 // CHUNK_MULTIPLE * CHUNK_MULTIPLE
        session.content += content[:half] if self._strikes("partial") else content
        if self._strikes("forgotten"):
            session.content.clear()
        if self.on_chunk is not None:
            self.on_chunk(len(session.content))
        return self._answered(session)

    def _answered(self, session: Session) -> Response:
        answer = self._state(session)
        if self._strikes("broken_after"):
            return _failure(503, "backendError", "Service unavailable")
        if self._strikes("lost_replies") or (session.video is not None and self._strikes("lost_final")):
            return BreaksOff()
        if session.video is not None and self._strikes("garbled_final"):
            return Response("<!doctype html><title>Bad gateway</title>", media_type="text/html")
        return answer

    def _state(self, session: Session) -> Response:
        """Return how far the upload is, or its video."""
        if len(session.content) == session.size and session.video is None:
            session.video = self._made(session)
        if session.video is not None:
            return JSONResponse(session.video.to_resource(self._clock(), self._processing), 201)
        headers = {"Range": f"bytes=0-{len(session.content) - 1}"} if session.content else {}
        return Response(status_code=308, headers=headers)

    def _made(self, session: Session) -> Video:
        faults = self.faults
        content = bytes(session.content)
        video = Video(
            uuid4().hex[:11], session.resource, content, self._clock(), None, faults.failure, faults.rejection
        )
        self.videos[video.id] = video
        return video

    async def _set_thumbnail(self, request: Request) -> Response:
        video = self.videos.get(request.query_params.get("videoId", ""))
        if video is None:
            return _failure(404, "videoNotFound", "The video cannot be found.")
        if not request.headers.get("content-type", "").startswith("image/"):
            return _failure(400, "invalidImage", "The provided image content is invalid.")
        video.thumbnail = await request.body()
        return JSONResponse({"kind": "youtube#thumbnailSetResponse", "etag": "e", "items": [{}]})

    async def _list_videos(self, request: Request) -> Response:
        wanted = request.query_params.get("id", "").split(",")
        found = [self.videos[each] for each in wanted if each in self.videos]
        return _list([each.to_resource(self._clock(), self._processing) for each in found])

    async def _list_channels(self, _: Request) -> Response:
        return _list([{"id": "UC-standin", "contentDetails": {"relatedPlaylists": {"uploads": UPLOADS}}}])

    async def _list_items(self, request: Request) -> Response:
        if request.query_params.get("playlistId") != UPLOADS:
            return _failure(404, "playlistNotFound", "The playlist cannot be found.")
        start = int(request.query_params.get("pageToken", "0"))
        newest = list(reversed(self.videos))
        end = start + self.page_size
        items = [{"contentDetails": {"videoId": each}} for each in newest[start:end]]
        return _list(items, str(end) if end < len(newest) else None)

    async def _show_videos(self) -> Response:
        return JSONResponse({"videos": [video.counted() for video in self.videos.values()]})


async def _sent(request: Request) -> bytes:
    """Return the received bytes: of a sender that disconnects, YouTube keeps multiples of the chunk size."""
    content = bytearray()
    try:
        async for piece in request.stream():
            content += piece
    except ClientDisconnect:
        del content[len(content) // CHUNK_MULTIPLE * CHUNK_MULTIPLE :]
    return bytes(content)


def _fits(session: Session, span: str) -> bool:
    """Return whether a chunk begins where the session ends and has a valid size."""
    found = _SPAN.fullmatch(span)
    if found is None:
        return False
    start, end, size = (int(each) for each in found.groups())
    is_whole = (end + 1 - start) % CHUNK_MULTIPLE == 0 or end + 1 == size
    return size == session.size and start == len(session.content) and start <= end < size and is_whole


def _wrong(resource: dict[str, Any], size: int) -> str | None:
    """Return the reason for which YouTube would reject this video, in its own words."""
    snippet, status = resource["snippet"], resource["status"]
    if not 0 < len(snippet["title"]) <= LONGEST_TITLE or set("<>") & set(snippet["title"]):
        return "invalidTitle"
    if len(snippet["description"].encode()) > LONGEST_DESCRIPTION or set("<>") & set(snippet["description"]):
        return "invalidDescription"
    if "publishAt" in status and status["privacyStatus"] != "private":
        return "invalidPublishAt"
    return None if size > 0 else "mediaBodyRequired"


def _bad_span(span: str) -> Response:
    return _failure(400, "badContent", f"Invalid Content-Range: {json.dumps(span)}")


def _list(items: list[dict[str, Any]], after: str | None = None) -> Response:
    return JSONResponse({"items": items} | ({"nextPageToken": after} if after else {}))


def _failure(status: int, reason: str, message: str, headers: dict[str, str] | None = None) -> Response:
    errors = [{"domain": "youtube", "reason": reason, "message": message}]
    return JSONResponse({"error": {"code": status, "message": message, "errors": errors}}, status, headers)
