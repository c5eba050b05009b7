"""Pexels: a thin client for its video search.

Pexels reports the monthly quota only on successful answers, so the client remembers the last value for the next
rejection. Links to files come from the answer and lead to other hosts: they are fetched without the key, and only if
public.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import urlencode

from pydantic import BaseModel, Field, ValidationError
from pydantic_settings import SettingsConfigDict

from retoma.connections import ConnectionType
from retoma.errors import ProviderDown
from retoma.outgoing import HttpClient, NoResponse, Response, UnsafeUrl
from retoma_apps.providers.connection_fields import API_KEY
from retoma_apps.providers.footage.errors import ClipUnavailable, ClipUnusable, FootageRefused, InvalidAnswer
from retoma_apps.providers.footage.files import check_video, write_jpeg
from retoma_apps.providers.footage.port import FoundClip
from retoma_apps.providers.http_service import HttpService, ServiceSettings
from retoma_apps.providers.responses import format_provider_message, parse_json_object
from retoma_apps.providers.retry_after import MAX_DELAY

DEFAULT_RETRY_DELAY = timedelta(minutes=5)
"""Used if Pexels does not say how long to wait; its usual limit is hourly."""
_LARGEST_PICTURE = 10 * 1024**2
_LONGEST_QUERY = 120
_MOST = 80
_WANTED = (1920, 1080)
_NARROWEST = 1280
_LOCALES = {"pt": "pt-BR", "en": "en-US"}
_PAGE_WORDS = re.compile(r"/([^/?#]+?)(?:-?\d+)?/?(?:[?#]|$)")
_UNSHOWABLE = re.compile(r"[\x00-\x1f\x7f]")


Pixels = Annotated[int, Field(ge=0, le=100_000)]


class PexelsSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="PEXELS_")

    base_url: str = "https://api.pexels.com"
    timeout_seconds: float = Field(30.0, gt=0, description="Timeout for one search.")
    download_seconds: float = Field(300.0, gt=0, description="Timeout for one download.")
    max_clip_bytes: int = Field(300_000_000, gt=0, description="Largest file to download, in bytes.")


class _File(BaseModel):
    link: str
    file_type: str = ""
    width: Pixels | None = None
    height: Pixels | None = None


class _Author(BaseModel):
    name: str = ""


class _Video(BaseModel):
    id: int = Field(ge=0, lt=10**18)
    url: str = ""
    image: str = ""
    duration: float = Field(0, ge=0, le=86_400)
    tags: list[Any] = []
    user: _Author = _Author()
    video_files: list[_File]


class Pexels(HttpService[PexelsSettings]):
    name = "pexels"
    longest_shot = 15.0
    label = "Pexels"
    no_key = "Pexels needs an API key: set PEXELS_API_KEY"
    variables: tuple[str, ...] = ("PEXELS_API_KEY",)
    settings_type = PexelsSettings
    account_errors = dict.fromkeys((401, 402, 403), "Pexels rejected our key: set PEXELS_API_KEY to a valid one")

    def __init__(self, settings: PexelsSettings | None = None, outgoing: HttpClient | None = None) -> None:
        super().__init__(settings, outgoing)
        self.requests_left: int | None = None
        """Requests left this month, as Pexels last reported."""

    async def search(self, query: str, *, language: str, seconds: float, limit: int = 10) -> list[FoundClip]:
        answer = await self._search(query, language, limit)
        if not answer.is_success:
            self._raise_error(answer)
        self._record_quota(answer)
        clips = [found for video in _parse_videos(answer) if (found := _to_found_clip(video)) is not None]
        return sorted(clips, key=lambda found: found.seconds < seconds)[:limit]

    async def fetch(self, found: FoundClip, to: Path) -> None:
        part = to.with_name(f"{to.name}.fetched")
        try:
            await self._download(found.link, part, self._settings.max_clip_bytes)
            await check_video(part)
            part.rename(to)
        finally:
            part.unlink(missing_ok=True)

    async def fetch_thumbnail(self, found: FoundClip, to: Path) -> None:
        part = to.with_name(f"{to.name}.fetched")
        try:
            await self._download(found.picture, part, _LARGEST_PICTURE)
            await write_jpeg(part, to)
        finally:
            part.unlink(missing_ok=True)

    async def check_account(self) -> str:
        """Make the smallest search: it counts as one request of the quota, and costs nothing."""
        answer = await self._search("tea", "en", 1)
        if not answer.is_success:
            self._raise_error(answer)
        self._record_quota(answer)
        left = self.requests_left
        return "Pexels accepts the key" + (f"; {left:,} requests left this month" if left is not None else "")

    async def _search(self, query: str, language: str, limit: int) -> Response:
        parameters = {
            "query": " ".join(query.split())[:_LONGEST_QUERY],
            "orientation": "landscape",
            "size": "medium",
            "locale": _LOCALES.get(language.partition("-")[0].lower(), "en-US"),
            "per_page": min(max(limit, 1), _MOST),
        }
        return await self._request("GET", f"/v1/videos/search?{urlencode(parameters)}", {"Authorization": self._key})

    async def _download(self, link: str, to: Path, limit: int) -> None:
        try:
            await self._links.download(link, to, limit=limit, timeout=self._settings.download_seconds)
        except UnsafeUrl as error:
            raise ClipUnusable(f"Pexels links to an address that is not allowed: {error}") from error
        except NoResponse as error:
            raise ClipUnavailable(f"a file from Pexels could not be downloaded: {error}") from error

    def _record_quota(self, answer: Response) -> None:
        header = answer.headers.get("x-ratelimit-remaining", "")
        self.requests_left = int(header) if header.isdecimal() and len(header) < 10 else self.requests_left

    def _raise_error(self, answer: Response) -> NoReturn:
        why = format_provider_message((parse_json_object(answer) or {}).get("error"), self._key)
        if answer.status >= 500:
            raise ProviderDown(f"Pexels failed with {answer.status}{why}")
        usual = MAX_DELAY if self.requests_left == 0 else DEFAULT_RETRY_DELAY
        self._raise_account_error(answer, answer.status, why, usual)
        raise FootageRefused(f"Pexels rejected this search with {answer.status}{why}")


def _parse_videos(answer: Response) -> list[_Video]:
    """Parse the list of videos, leaving out invalid ones: the others are still usable."""
    entries = (parse_json_object(answer) or {}).get("videos")
    if not isinstance(entries, list):
        raise InvalidAnswer(f"Pexels answered {answer.status} without a list of videos, or with one that is too long")
    return [video for each in entries if (video := _parse_video(each)) is not None]


def _parse_video(entry: Any) -> _Video | None:
    try:
        return _Video.model_validate(entry)
    except ValidationError:
        return None


def _to_found_clip(video: _Video) -> FoundClip | None:
    if (file := choose_file(video.video_files)) is None or video.duration <= 0:
        return None
    page = video.url if video.url.startswith("https://") and len(video.url) <= 2000 else ""
    return FoundClip(
        id=f"pexels-{video.id}",
        source="pexels",
        url=_UNSHOWABLE.sub("", page),
        author=_UNSHOWABLE.sub(" ", video.user.name).strip()[:200],
        link=file.link,
        picture=video.image,
        seconds=video.duration,
        width=file.width or 0,
        height=file.height or 0,
        tags=_tags(video),
    )


def choose_file(files: Sequence[_File]) -> _File | None:
    """Return the mp4 nearest to 1920x1080; one narrower than 1280 only if there is no other."""
    films = [file for file in files if file.file_type == "video/mp4"]
    wide = [file for file in films if (file.width or 0) >= _NARROWEST]
    return min(wide or films, key=_distance, default=None)


def _distance(file: _File) -> int:
    return abs((file.width or 0) - _WANTED[0]) + abs((file.height or 0) - _WANTED[1])


def _tags(video: _Video) -> tuple[str, ...]:
    """Return the video's tags and the words of its page URL: Pexels rarely tags a video."""
    page = _PAGE_WORDS.findall(video.url)
    words = page[-1].split("-") if page else []
    return tuple(tag[:60] for tag in [*map(str, video.tags), *words] if tag)[:50]


CONNECTION = ConnectionType(Pexels.name, "Pexels", (API_KEY,), Pexels.try_connection, variables=Pexels.variables)
