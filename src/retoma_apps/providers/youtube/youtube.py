"""YouTube: a thin client of its Data API and of its resumable uploads.

YouTube takes no idempotency key. Two things stand in for it: a session makes one video at most and says so when asked,
and each video carries a mark among its tags, by which it is found when the session is gone. YouTube lists a new video
some seconds after it was taken: who has just sent the last byte asks the session, and `find` only for a session that
has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, cast, get_args
from urllib.parse import quote, urlencode

from retoma import GiveUp, ProviderDown
from retoma.outgoing import Answer, Guard, NoAnswer, Outgoing, without_path
from retoma_apps.providers.answers import object_of
from retoma_apps.providers.youtube.fitting import fitted
from retoma_apps.providers.youtube.pictures import read_thumbnail
from retoma_apps.providers.youtube.port import Published, State, Status, VideoToPublish
from retoma_apps.providers.youtube.refusals import OF_THE_VIDEO, fail
from retoma_apps.providers.youtube.settings import YouTubeSettings
from retoma_apps.providers.youtube.tokens import Tokens
from retoma_apps.providers.youtube.upload import Upload, video_id

log = logging.getLogger("retoma_apps.youtube")
_LARGEST_ANSWER = 4 * 1024**2
_PAGES = 4
"""How many pages of fifty of our newest videos are searched for a mark."""
_PEOPLE_AND_BLOGS = "22"
_GOOGLE = ".googleapis.com"
_NO_THUMBNAIL = ("forbidden",)
"""An account that is not verified may upload videos, and no thumbnails."""


class YouTube:
    """Make it where it is used: its connections belong to one event loop."""

    name = "youtube"

    def __init__(self, settings: YouTubeSettings | None = None, outgoing: Outgoing | None = None) -> None:
        self._settings = settings or YouTubeSettings()
        self._outgoing = outgoing or Outgoing(_guard(self._settings))
        self._tokens = Tokens(self._settings, self._outgoing)

    async def begin(self, video: VideoToPublish, size: int) -> str:
        answer = await self._asked(
            "POST",
            f"{self._settings.upload_url}/videos?uploadType=resumable&part=snippet,status",
            json=_resource(fitted(video)),
            headers={"X-Upload-Content-Length": str(size), "X-Upload-Content-Type": "video/mp4"},
        )
        session = answer.headers.get("location", "")
        if not self._is_ours(session):
            raise ProviderDown("YouTube opened no session: its answer names no address of its own")
        return session

    async def send(self, session: str, path: Path) -> Published:
        if not self._is_ours(session):
            raise GiveUp("this is no session of YouTube's", "SESSION_INVALID")

        async def put(headers: Mapping[str, str], content: bytes) -> Answer:
            return await self._request("PUT", session, headers, content, self._settings.chunk_seconds)

        def refuse(answer: Answer) -> NoReturn:
            fail(answer, self._secrets(session))

        return _published(await Upload(self._settings, put, path, refuse).run())

    async def find(self, mark: str) -> Published | None:
        playlist = await self._uploads()
        token = ""
        for _ in range(_PAGES if playlist else 0):
            page = await self._listed("playlistItems", part="contentDetails", playlistId=playlist, pageToken=token)
            ids = [found for each in _items(page) if (found := video_id(_part(each, "contentDetails").get("videoId")))]
            if (found := await self._marked(ids, mark)) is not None:
                return _published(found)
            token = str(page.get("nextPageToken") or "")
            if not token:
                break
        return None

    async def set_thumbnail(self, video_id: str, path: Path) -> None:
        content, kind = await asyncio.to_thread(read_thumbnail, path)
        url = f"{self._settings.upload_url}/thumbnails/set?videoId={quote(video_id, safe='')}"
        await self._asked("POST", url, headers={"Content-Type": kind}, content=content, of_the_video=_NO_THUMBNAIL)

    async def status(self, video_id: str) -> Status:
        found = _items(await self._listed("videos", part="status,processingDetails", id=video_id))
        return next((_status(_part(each, "status")) for each in found), Status("deleted", "YouTube has no such video"))

    async def close(self) -> None:
        await self._outgoing.close()

    async def _uploads(self) -> str:
        """The playlist in which YouTube lists all that the channel has uploaded."""
        for each in _items(await self._listed("channels", part="contentDetails", mine="true")):
            related = _part(_part(each, "contentDetails"), "relatedPlaylists")
            return str(related.get("uploads") or "")
        return ""

    async def _marked(self, ids: list[str], mark: str) -> str | None:
        if not ids:
            return None
        for each in _items(await self._listed("videos", part="snippet,status", id=",".join(ids))):
            tags, state = _part(each, "snippet").get("tags"), _part(each, "status").get("uploadStatus")
            # One that was rejected counts: the same again would be rejected again, and held against the channel.
            if isinstance(tags, list) and mark in tags and state not in ("failed", "deleted"):
                return video_id(each.get("id"))
        return None

    async def _listed(self, kind: str, **asked: str) -> dict[str, Any]:
        query = urlencode({"maxResults": "50", **{name: value for name, value in asked.items() if value}})
        answer = await self._asked("GET", f"{self._settings.base_url}/{kind}?{query}")
        told = object_of(answer)
        if told is None:
            raise ProviderDown("YouTube's answer is no JSON object, or too long to read")
        return told

    async def _asked(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        json: Any = None,
        of_the_video: Sequence[str] = OF_THE_VIDEO,
    ) -> Answer:
        """A success. Raises for everything else, each kind as who calls must act on it."""
        try:
            answer = await self._request(method, url, headers or {}, content, self._settings.timeout_seconds, json)
        except NoAnswer as error:
            raise ProviderDown(f"YouTube did not answer: {error}") from error
        if not answer.is_success:
            fail(answer, self._secrets(), of_the_video)
        return answer

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, timeout: float, json: Any = None
    ) -> Answer:
        """The answer, whatever its status; an access token that is refused is had anew, once."""
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
            self._tokens.drop(token)
        return answer

    def _is_ours(self, session: str) -> bool:
        """Our access token and the video go only where the settings say, or to Google."""
        origin = without_path(session)
        return origin == without_path(self._settings.upload_url) or (
            origin.startswith("https://") and origin.endswith(_GOOGLE)
        )

    def _secrets(self, session: str = "") -> tuple[str, ...]:
        client = self._settings.client_secret.get_secret_value()
        return (session, client, self._settings.refresh_token.get_secret_value(), self._tokens.last)


def _guard(settings: YouTubeSettings) -> Guard:
    guard = Guard()
    for url in (settings.base_url, settings.upload_url, settings.token_url):
        guard = guard.allowing(url)
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
    return {"snippet": snippet, "status": status}


def _published(found: str) -> Published:
    return Published(found, f"https://www.youtube.com/watch?v={found}")


def _status(told: dict[str, Any]) -> Status:
    """Every state that YouTube names, and those it may name one day."""
    state, publish_at = told.get("uploadStatus"), _time(told.get("publishAt"))
    if state == "processed" and told.get("privacyStatus") == "public":
        return Status("published", publish_at=publish_at)
    if state not in get_args(State):
        log.warning("YouTube names a state that is not known here: %r; it is taken to be `uploaded`", str(state)[:60])
        state = "uploaded"
    reason = told.get("failureReason") or told.get("rejectionReason") or ""
    return Status(cast("State", state), str(reason)[:100], publish_at)


def _time(given: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(given)
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
