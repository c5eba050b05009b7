"""YouTube's routes, with injectable faults."""

from __future__ import annotations

import email
import hashlib
import json
import re
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email import policy
from typing import Any
from urllib.parse import parse_qs, urlencode
from uuid import uuid4

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.requests import ClientDisconnect

from retoma_apps.providers.youtube.settings import CHUNK_MULTIPLE
from retoma_apps.providers.youtube.text_limits import LONGEST_DESCRIPTION, LONGEST_TITLE
from standins.faults import PAGE, LostReply
from standins.faults import Faults as CommonFaults
from standins.server import Routes, StandInServer, read_bearer
from standins.youtube.store import Session, Video

UPLOADS = "UU-standin"
_SPAN = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_QUESTION = re.compile(r"bytes \*/(\d+)")

Answer = Callable[[Request], Awaitable[Response]]


@dataclass
class Faults(CommonFaults):
    partial: int = 0
    """Chunks of which only half is accepted."""
    forgotten: int = 0
    """Chunks after which all data is lost: a 308 without a Range."""
    broken_after: int = 0
    """A 503 after a chunk was accepted."""
    lost_final: int = 0
    """A lost reply to the last byte: the video exists, but its sender does not know."""
    garbled_final: int = 0
    """The last byte is answered with a proxy's HTML page."""
    refused_tokens: int = 0
    """A 401, as for an expired token."""
    retry_after: float | None = 7
    refuses_consent: int = 0
    """Requests for consent that the owner of the channel refuses."""
    quota: bool = False
    upload_limit: bool = False
    forbidden: bool = False
    captions_forbidden: bool = False
    """The account has not consented to captions."""
    failure: str = ""
    """The processing error of the next videos, such as `codec`."""
    rejection: str = ""


class StandIn(StandInServer[Faults]):
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
        self.codes: dict[str, dict[str, str]] = {}
        """What was asked for with each consent whose code was not exchanged yet."""
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
            "consent_url": f"{origin}/consent",
        }

    def forget_sessions(self) -> None:
        """Expire all sessions, as after a week: a request for one gets a 404."""
        self.sessions.clear()

    def _routes(self) -> Routes:
        yield "GET", "/consent", self._consent
        yield "POST", "/token", self._token
        yield "POST", "/upload/youtube/v3/videos", self._guard(self._begin)
        yield "PUT", "/upload/youtube/v3/videos", self._guard(self._put)
        yield "POST", "/upload/youtube/v3/thumbnails/set", self._guard(self._set_thumbnail)
        yield "POST", "/upload/youtube/v3/captions", self._guard(self._insert_captions)
        yield "PUT", "/upload/youtube/v3/captions", self._guard(self._update_captions)
        yield "GET", "/youtube/v3/captions", self._guard(self._list_captions)
        yield "PUT", "/youtube/v3/videos", self._guard(self._update_video)
        yield "GET", "/youtube/v3/videos", self._guard(self._list_videos)
        yield "DELETE", "/youtube/v3/videos", self._guard(self._delete_video)
        yield "GET", "/youtube/v3/channels", self._guard(self._list_channels)
        yield "GET", "/youtube/v3/playlistItems", self._guard(self._list_items)
        yield "GET", "/standin/videos", self._show_videos

    def _guard(self, answer: Answer) -> Answer:
        async def answer_if_authorised(request: Request) -> Response:
            self.requests[f"{request.method} {request.url.path.rpartition('/')[2]}"] += 1
            return await self._refusal(request) or await answer(request)

        return answer_if_authorised

    async def _refusal(self, request: Request) -> Response | None:
        given = read_bearer(request)
        if not self.tokens or given != self.tokens[-1] or self._strikes("refused_tokens"):
            return _failure(401, "authError", "Invalid Credentials")
        if self.faults.quota:
            return _failure(403, "quotaExceeded", "The request cannot be completed: quota exceeded")
        if self.faults.forbidden:
            return _failure(403, "forbidden", f"Forbidden for {given}")
        return await self._refuse(_failure(429, "rateLimitExceeded", "Too many requests"), _outage())

    async def _token(self, request: Request) -> Response:
        self.requests["POST token"] += 1
        given = parse_qs((await request.body()).decode())
        if given.get("grant_type") == ["authorization_code"]:
            return self._exchange_code({name: values[0] for name, values in given.items()})
        if given.get("grant_type") != ["refresh_token"] or not given.get("client_secret"):
            return JSONResponse({"error": "invalid_request"}, 400)
        if self._refresh_token is not None and given.get("refresh_token") != [self._refresh_token]:
            return JSONResponse({"error": "invalid_grant", "error_description": "Token has been revoked."}, 400)
        self.tokens.append(f"ya29.{uuid4().hex}")
        return JSONResponse({"access_token": self.tokens[-1], "expires_in": 3599, "token_type": "Bearer"})

    async def _consent(self, request: Request) -> Response:
        """The owner of the channel consents or, with the fault `refuses_consent`, refuses. Google asks on a page."""
        asked = dict(request.query_params)
        needed = ("client_id", "redirect_uri", "state", "code_challenge", "scope")
        if any(not asked.get(name) for name in needed) or asked.get("code_challenge_method") != "S256":
            return JSONResponse({"error": "invalid_request"}, 400)
        answer = {"state": asked["state"]}
        if self._strikes("refuses_consent"):
            answer["error"] = "access_denied"
        else:
            answer["code"] = f"4/{uuid4().hex}"
            self.codes[answer["code"]] = asked
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(answer)}", 302)

    def _exchange_code(self, given: dict[str, str]) -> Response:
        """Return a refresh token for a code, once, and only to who has asked for it."""
        asked = self.codes.pop(given.get("code", ""), None)
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        is_same = asked is not None and (
            asked["code_challenge"] == urlsafe_b64encode(digest).rstrip(b"=").decode()
            and asked["client_id"] == given.get("client_id")
            and asked["redirect_uri"] == given.get("redirect_uri")
        )
        if not is_same or not given.get("client_secret"):
            return JSONResponse({"error": "invalid_grant"}, 400)
        self.tokens.append(f"ya29.{uuid4().hex}")
        self._refresh_token = f"1//{uuid4().hex}"
        answer = {"access_token": self.tokens[-1], "expires_in": 3599, "refresh_token": self._refresh_token}
        return JSONResponse({**answer, "token_type": "Bearer"})

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
        content = await _read_content(request)
        if not _fits(session, span):  # checked only now: of two concurrent senders, one is late
            self.misplaced += 1
            return _bad_span(span)
        return await self._take(session, content)

    async def _take(self, session: Session, content: bytes) -> Response:
        half = len(content) // 2 // CHUNK_MULTIPLE * CHUNK_MULTIPLE
        session.content += content[:half] if self._strikes("partial") else content
        if self._strikes("forgotten"):
            session.content.clear()
        if self.on_chunk is not None:
            self.on_chunk(len(session.content))
        return await self._answer_chunk(session)

    async def _answer_chunk(self, session: Session) -> Response:
        answer = self._state(session)
        if self._strikes("broken_after"):
            return _outage()
        if session.video is not None and self._strikes("lost_final"):
            return LostReply()
        if session.video is not None and self._strikes("garbled_final"):
            return HTMLResponse(PAGE)
        return await self._deliver(answer)

    def _state(self, session: Session) -> Response:
        """Return how far the upload is, or its video."""
        if len(session.content) == session.size and session.video is None:
            session.video = self._make_video(session)
        if session.video is not None:
            return JSONResponse(session.video.to_resource(self._clock(), self._processing), 201)
        headers = {"Range": f"bytes=0-{len(session.content) - 1}"} if session.content else {}
        return Response(status_code=308, headers=headers)

    def _make_video(self, session: Session) -> Video:
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

    async def _update_video(self, request: Request) -> Response:
        """Replace the named parts of a video, and refuse a snippet that lacks what YouTube requires."""
        given, parts = await request.json(), request.query_params.get("part", "").split(",")
        video = self.videos.get(given.get("id", ""))
        if video is None:
            return _failure(404, "videoNotFound", "The video cannot be found.")
        changed = video.resource | {part: given[part] for part in parts if part in given}
        if (wrong := _wrong(changed, 1)) is not None or "categoryId" not in changed["snippet"]:
            return _failure(400, wrong or "invalidCategoryId", "The request metadata is refused")
        video.resource = changed
        return JSONResponse(video.to_resource(self._clock(), self._processing))

    async def _list_captions(self, request: Request) -> Response:
        video = self.videos.get(request.query_params.get("videoId", ""))
        if video is None:
            return _failure(404, "videoNotFound", "The video cannot be found.")
        if self.faults.captions_forbidden:
            return _failure(403, "insufficientPermissions", "Request had insufficient authentication scopes.")
        return _list(
            [
                {"id": f"{video.id}.{each}", "snippet": {"language": each, "name": "", "trackKind": "standard"}}
                for each in video.captions
            ]
        )

    async def _insert_captions(self, request: Request) -> Response:
        resource, track = await _read_multipart(request)
        video, language = self.videos.get(resource["snippet"]["videoId"]), resource["snippet"]["language"]
        if video is None:
            return _failure(404, "videoNotFound", "The video cannot be found.")
        if language in video.captions:
            return _failure(409, "captionExists", "The video has a track with this name and language.")
        video.captions[language] = track
        return JSONResponse({"id": f"{video.id}.{language}"})

    async def _update_captions(self, request: Request) -> Response:
        resource, track = await _read_multipart(request)
        video, _, language = resource["id"].partition(".")
        if video not in self.videos or language not in self.videos[video].captions:
            return _failure(404, "captionNotFound", "The caption track cannot be found.")
        self.videos[video].captions[language] = track
        return JSONResponse({"id": resource["id"]})

    async def _delete_video(self, request: Request) -> Response:
        if self.videos.pop(request.query_params.get("id", ""), None) is None:
            return _failure(404, "videoNotFound", "The video cannot be found.")
        return Response(status_code=204)

    async def _list_channels(self, _: Request) -> Response:
        snippet = {"title": "Stand-in channel"}
        details = {"relatedPlaylists": {"uploads": UPLOADS}}
        return _list([{"id": "UC-standin", "snippet": snippet, "contentDetails": details}])

    async def _list_items(self, request: Request) -> Response:
        if request.query_params.get("playlistId") != UPLOADS:
            return _failure(404, "playlistNotFound", "The playlist cannot be found.")
        start = int(request.query_params.get("pageToken", "0"))
        newest = list(reversed(self.videos))
        end = start + self.page_size
        items = [{"contentDetails": {"videoId": each}} for each in newest[start:end]]
        return _list(items, str(end) if end < len(newest) else None)

    async def _show_videos(self) -> Response:
        return JSONResponse({"videos": [video.summarise() for video in self.videos.values()]})


async def _read_multipart(request: Request) -> tuple[dict[str, Any], str]:
    """Return the JSON part and the text of the media part, as an independent parser of mail reads them."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    _, described, media = email.message_from_bytes(head + await request.body(), policy=policy.default).walk()
    return json.loads(described.get_content()), media.get_content()


async def _read_content(request: Request) -> bytes:
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


def _outage() -> Response:
    return _failure(503, "backendError", "Service unavailable")


def _failure(status: int, reason: str, message: str) -> Response:
    errors = [{"domain": "youtube", "reason": reason, "message": message}]
    return JSONResponse({"error": {"code": status, "message": message, "errors": errors}}, status)
