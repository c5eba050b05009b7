"""YouTube: a thin client for its Data API and its resumable uploads.

YouTube has no idempotency keys. Two things replace them: a session creates at most one video and reports it on request,
and each video has a mark among its tags, by which it is found after the session has expired. YouTube lists a new video
some seconds after the upload, so query the session right after the last byte, and call `find` only if it has expired.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn, cast, get_args
from urllib.parse import quote, urlencode

from retoma import GiveUp
from retoma.connections import TenantConnections
from retoma.errors import ProviderDown, ProviderRejected
from retoma.outgoing import Guard, HttpClient, NoResponse, Response, strip_path
from retoma_apps.providers.responses import parse_json_object
from retoma_apps.providers.youtube.error_mapping import VIDEO_REASONS, raise_error
from retoma_apps.providers.youtube.port import (
    OpenChannel,
    Published,
    State,
    Status,
    VideoToPublish,
    check_language,
)
from retoma_apps.providers.youtube.settings import YouTubeSettings
from retoma_apps.providers.youtube.text_limits import fit_texts
from retoma_apps.providers.youtube.thumbnails import read_thumbnail
from retoma_apps.providers.youtube.tokens import AccessTokens
from retoma_apps.providers.youtube.upload import ResumableUpload, video_id

log = logging.getLogger(__name__)
_LARGEST_ANSWER = 4 * 1024**2
_PAGES = 4
"""How many pages of fifty of our newest videos are searched for a mark."""
_PEOPLE_AND_BLOGS = "22"
_GOOGLE = ".googleapis.com"
_NO_THUMBNAIL = ("forbidden",)
"""An unverified account may upload videos, but not thumbnails."""
_NO_CAPTIONS = ("forbidden", "insufficientPermissions", "captionExists", "invalidMetadata")
"""An account may have consented to uploads, but not to captions, which need another scope."""


class YouTube:
    """Create it where it is used: its connections belong to one event loop."""

    name = "youtube"
    is_offline = False
    variables: tuple[str, ...] = ("YOUTUBE_CLIENT_ID", "YOUTUBE_CLIENT_SECRET", "YOUTUBE_REFRESH_TOKEN")

    def __init__(self, settings: YouTubeSettings | None = None, outgoing: HttpClient | None = None) -> None:
        self._settings = settings or YouTubeSettings()
        self._outgoing = outgoing or HttpClient(build_guard(self._settings))
        self._tokens = AccessTokens(self._settings, self._outgoing)

    @classmethod
    def for_tenant(cls, connections: TenantConnections, folder: Path, url: str) -> OpenChannel | None:
        """With an OAuth client or any connection, an account without a token waits for it."""
        if not connections.has(cls.name) and not YouTubeSettings().client_id:
            return None

        @cache
        def open_channel(account: str) -> YouTube:
            values = connections.find(cls.name, account)
            if values is None:
                return cls(YouTubeSettings.for_account(account))
            return cls(YouTubeSettings.from_connection(account, values))

        return open_channel

    async def check_account(self) -> str:
        """List our own channel, which costs one of the 10,000 units of a day."""
        for each in _items(await self._list("channels", part="snippet", mine="true")):
            title = str(_part(each, "snippet").get("title") or "")
            return f"YouTube accepts the consent for the channel {title!r:.100}"
        raise ProviderRejected("the consent is valid, but its Google account has no YouTube channel: create one")

    async def begin(self, video: VideoToPublish, size: int) -> str:
        answer = await self._request_checked(
            "POST",
            f"{self._settings.upload_url}/videos?uploadType=resumable&part={_parts(video)}",
            json=_resource(fit_texts(video)),
            headers={"X-Upload-Content-Length": str(size), "X-Upload-Content-Type": "video/mp4"},
        )
        session = answer.headers.get("location", "")
        if not self._is_allowed_session(session):
            raise ProviderDown("YouTube opened no session: its answer contains no valid address")
        return session

    async def send(self, session: str, path: Path) -> Published:
        if not self._is_allowed_session(session):
            raise GiveUp("this is not a YouTube session", "SESSION_INVALID")

        async def put(headers: Mapping[str, str], content: bytes) -> Response:
            return await self._request("PUT", session, headers, content, self._settings.chunk_seconds)

        def refuse(answer: Response) -> NoReturn:
            raise_error(answer, self._secrets(session))

        return _to_published(await ResumableUpload(self._settings, put, path, refuse).run())

    async def find(self, mark: str) -> Published | None:
        playlist = await self._get_uploads_playlist()
        token = ""
        for _ in range(_PAGES if playlist else 0):
            page = await self._list("playlistItems", part="contentDetails", playlistId=playlist, pageToken=token)
            ids = [found for each in _items(page) if (found := video_id(_part(each, "contentDetails").get("videoId")))]
            if (found := await self._find_marked(ids, mark)) is not None:
                return _to_published(found)
            token = str(page.get("nextPageToken") or "")
            if not token:
                break
        return None

    async def set_thumbnail(self, video_id: str, path: Path) -> None:
        content, kind = await asyncio.to_thread(read_thumbnail, path)
        url = f"{self._settings.upload_url}/thumbnails/set?videoId={quote(video_id, safe='')}"
        await self._request_checked(
            "POST", url, headers={"Content-Type": kind}, content=content, video_reasons=_NO_THUMBNAIL
        )

    async def update_texts(self, video_id: str, video: VideoToPublish) -> None:
        """Send only the parts with texts: YouTube keeps the others."""
        resource = _resource(fit_texts(video))
        body = {"id": video_id, "snippet": resource["snippet"], "localizations": resource.get("localizations", {})}
        await self._request_checked("PUT", f"{self._settings.base_url}/videos?part=snippet,localizations", json=body)

    async def set_captions(self, video_id: str, language: str, captions: bytes) -> None:
        """Replace the track that this client has set before, which YouTube lists by language and name."""
        check_language(language)
        known = await self._find_captions(video_id, language)
        resource = {"id": known} if known else {"snippet": {"videoId": video_id, "language": language, "name": ""}}
        kind, content = _multipart(resource, captions)
        await self._request_checked(
            "PUT" if known else "POST",
            f"{self._settings.upload_url}/captions?uploadType=multipart&part={'id' if known else 'snippet'}",
            headers={"Content-Type": kind},
            content=content,
            video_reasons=_NO_CAPTIONS,
        )

    async def delete(self, video_id: str) -> None:
        url = f"{self._settings.base_url}/videos?{urlencode({'id': video_id})}"
        await self._request_checked("DELETE", url, may_be_gone=True)

    async def status(self, video_id: str) -> Status:
        found = _items(await self._list("videos", part="status,processingDetails", id=video_id))
        return next(
            (_to_status(_part(each, "status")) for each in found), Status("deleted", "YouTube has no such video")
        )

    async def close(self) -> None:
        await self._outgoing.close()

    async def _get_uploads_playlist(self) -> str:
        """Return the id of the playlist in which YouTube lists all uploads of the channel."""
        for each in _items(await self._list("channels", part="contentDetails", mine="true")):
            related = _part(_part(each, "contentDetails"), "relatedPlaylists")
            return str(related.get("uploads") or "")
        return ""

    async def _find_marked(self, ids: list[str], mark: str) -> str | None:
        if not ids:
            return None
        for each in _items(await self._list("videos", part="snippet,status", id=",".join(ids))):
            tags, state = _part(each, "snippet").get("tags"), _part(each, "status").get("uploadStatus")
            # A rejected one counts: the same video would be rejected again, and would count against the channel.
            if isinstance(tags, list) and mark in tags and state not in ("failed", "deleted"):
                return video_id(each.get("id"))
        return None

    async def _find_captions(self, video_id: str, language: str) -> str | None:
        query = urlencode({"part": "snippet", "videoId": video_id})
        answer = await self._request_checked(
            "GET", f"{self._settings.base_url}/captions?{query}", video_reasons=_NO_CAPTIONS
        )
        for each in _items(parse_json_object(answer) or {}):
            track = _part(each, "snippet")
            is_own = track.get("trackKind") == "standard" and track.get("name") == ""
            if is_own and track.get("language") == language and isinstance(each.get("id"), str):
                return str(each["id"])
        return None

    async def _list(self, kind: str, **parameters: str) -> dict[str, Any]:
        query = urlencode({"maxResults": "50", **{name: value for name, value in parameters.items() if value}})
        answer = await self._request_checked("GET", f"{self._settings.base_url}/{kind}?{query}")
        body = parse_json_object(answer)
        if body is None:
            raise ProviderDown("YouTube's answer is not a JSON object, or is too long")
        return body

    async def _request_checked(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        json: Any = None,
        video_reasons: Sequence[str] = VIDEO_REASONS,
        may_be_gone: bool = False,
    ) -> Response:
        """Return a successful answer, or a 404 if it `may_be_gone`. Raise the error that each other answer requires."""
        try:
            answer = await self._request(method, url, headers or {}, content, self._settings.timeout_seconds, json)
        except NoResponse as error:
            raise ProviderDown(f"YouTube did not answer: {error}") from error
        if not answer.is_success and not (may_be_gone and answer.status == 404):
            raise_error(answer, self._secrets(), video_reasons)
        return answer

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, timeout: float, json: Any = None
    ) -> Response:
        """Return the answer with any status. If the access token is rejected, retry once with a new one."""
        for _ in range(2):
            token = await self._tokens.current()
            answer = await self._outgoing.request(
                method,
                url,
                headers={"Authorization": f"Bearer {token}", **headers},
                content=content,
                json=json,
                timeout=timeout,
                limit=_LARGEST_ANSWER,
            )
            if answer.status != 401:
                break
            self._tokens.discard(token)
        return answer

    def _is_allowed_session(self, session: str) -> bool:
        """Return whether our access token and the video may be sent there: to the configured host or to Google."""
        origin = strip_path(session)
        return origin == strip_path(self._settings.upload_url) or (
            origin.startswith("https://") and origin.endswith(_GOOGLE)
        )

    def _secrets(self, session: str = "") -> tuple[str, ...]:
        client = self._settings.client_secret.get_secret_value()
        return (session, client, self._settings.refresh_token.get_secret_value(), self._tokens.last)


def build_guard(settings: YouTubeSettings) -> Guard:
    guard = Guard()
    for url in (settings.base_url, settings.upload_url, settings.token_url):
        guard = guard.with_origin_of(url)
    return guard


def _resource(video: VideoToPublish) -> dict[str, Any]:
    status: dict[str, Any] = {
        "privacyStatus": "private" if video.publish_at else "public",
        "selfDeclaredMadeForKids": video.made_for_kids,
        "containsSyntheticMedia": video.synthetic,
    }
    if video.publish_at is not None:
        status["publishAt"] = video.publish_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    snippet = {
        "title": video.title,
        "description": video.description,
        "tags": list(video.tags),
        "categoryId": _PEOPLE_AND_BLOGS,
        "defaultLanguage": video.language,
        "defaultAudioLanguage": video.language,
    }
    resource: dict[str, Any] = {"snippet": snippet, "status": status}
    if video.localizations:
        resource["localizations"] = {language: vars(each) for language, each in video.localizations.items()}
    return resource


def _parts(video: VideoToPublish) -> str:
    return "snippet,status,localizations" if video.localizations else "snippet,status"


def _multipart(resource: Mapping[str, Any], captions: bytes) -> tuple[str, bytes]:
    """Return the media type and the content of a JSON part and a WebVTT part. The boundary is a digest, so that it
    occurs in neither."""
    boundary = sha256(captions).hexdigest()
    parts = (
        (b"application/json; charset=UTF-8", json.dumps(resource).encode()),
        (b"text/vtt; charset=UTF-8", captions),
    )
    mark = b"--" + boundary.encode()
    body = b"".join(mark + b"\r\nContent-Type: %b\r\n\r\n%b\r\n" % part for part in parts)
    return f"multipart/related; boundary={boundary}", body + mark + b"--\r\n"


def _to_published(found: str) -> Published:
    return Published(found, f"https://www.youtube.com/watch?v={found}")


def _to_status(status: dict[str, Any]) -> Status:
    """Convert every state that YouTube has, and any that it may add."""
    state, publish_at = status.get("uploadStatus"), _parse_time(status.get("publishAt"))
    if state == "processed" and status.get("privacyStatus") == "public":
        return Status("published", publish_at=publish_at)
    if state not in get_args(State):
        log.warning(
            "YouTube reported an unknown state: %r; treating it as `uploaded`",
            str(state)[:60],
            extra={"event": "youtube_state_unknown"},
        )
        state = "uploaded"
    reason = status.get("failureReason") or status.get("rejectionReason") or ""
    return Status(cast("State", state), str(reason)[:100], publish_at)


def _parse_time(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else None


def _items(page: dict[str, Any]) -> Iterator[dict[str, Any]]:
    listed = page.get("items")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            yield each


def _part(resource: dict[str, Any], name: str) -> dict[str, Any]:
    found = resource.get(name)
    return found if isinstance(found, dict) else {}
