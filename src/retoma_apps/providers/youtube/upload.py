"""One resumable upload. The session reports how many bytes it has, and the upload continues from there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from retoma import GiveUp
from retoma.errors import ProviderDown
from retoma.outgoing import NoResponse, Response
from retoma_apps.providers.responses import parse_json_object
from retoma_apps.providers.youtube.errors import SessionGone
from retoma_apps.providers.youtube.settings import YouTubeSettings

Put = Callable[[Mapping[str, str], bytes], Awaitable[Response]]
"""Puts these bytes to the session with these headers."""
_RANGE = re.compile(r"bytes=0-(\d{1,15})")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ACCOUNT_STATUSES = (401, 403, 429)


class ResumableUpload:
    """Uploads one file in one session. Concurrent senders are safe: the session keeps the order."""

    def __init__(self, settings: YouTubeSettings, put: Put, path: Path, fail: Callable[[Response], NoReturn]) -> None:
        self._settings = settings
        self._put = put
        self._path = path
        self._size = path.stat().st_size
        self._fail = fail
        self._most_received = 0

    async def run(self) -> str:
        """Return the video's id. Raise if the session makes no progress over several requests."""
        if not self._size:
            raise GiveUp("the video is empty: there is nothing to publish", "EMPTY_VIDEO")
        failures = most = 0
        while True:
            query = {"Content-Range": f"bytes */{self._size}"}
            answer = await self._send_remaining(await self._put_or_none(query, b""))
            if (video := self._completed_video(answer)) is not None:
                return video
            failures = 1 if self._most_received > most else failures + 1
            most = self._most_received
            await self._pause(failures, answer)

    async def _send_remaining(self, answer: Response | None) -> Response | None:
        """Send chunks while each makes progress, and return the last answer."""
        taken = -1
        while (further := self._received_bytes(answer)) is not None and taken < further < self._size:
            taken, self._most_received = further, max(further, self._most_received)
            answer = await self._send_chunk(taken)
        return answer

    async def _send_chunk(self, start: int) -> Response | None:
        chunk = await asyncio.to_thread(_read, self._path, start, self._settings.chunk_bytes)
        span = f"bytes {start}-{start + len(chunk) - 1}/{self._size}"
        return await self._put_or_none({"Content-Range": span, "Content-Type": "video/mp4"}, chunk)

    async def _put_or_none(self, headers: Mapping[str, str], content: bytes) -> Response | None:
        """Return None if there was no answer: the session is then queried again."""
        try:
            answer = await self._put({"Content-Length": str(len(content)), **headers}, content)
        except NoResponse:
            return None
        if answer.status in (404, 410):
            raise SessionGone
        if answer.status in _ACCOUNT_STATUSES:
            self._fail(answer)
        return answer

    def _completed_video(self, answer: Response | None) -> str | None:
        if answer is None or answer.status not in (200, 201):
            return None
        return video_id((parse_json_object(answer) or {}).get("id"))

    def _received_bytes(self, answer: Response | None) -> int | None:
        """Return how many bytes the session has, or None if this answer does not say."""
        if answer is None or answer.status != 308:
            return None
        if "range" not in answer.headers:
            return 0
        found = _RANGE.fullmatch(answer.headers["range"].strip())
        taken = int(found[1]) + 1 if found else None
        return taken if taken is not None and taken <= self._size else None

    async def _pause(self, failures: int, answer: Response | None) -> None:
        """Wait before the next query, or raise after too many."""
        if failures < self._settings.max_attempts:
            await asyncio.sleep(self._settings.backoff_seconds * 2 ** (failures - 1))
        elif answer is not None and 400 <= answer.status < 500:
            self._fail(answer)
        else:
            problem = "does not answer" if answer is None else f"answers {answer.status} without progress"
            raise ProviderDown(f"YouTube {problem}: the upload resumes later from where it stopped")


def video_id(value: Any) -> str | None:
    return value if isinstance(value, str) and _ID.fullmatch(value) else None


def _read(path: Path, start: int, most: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(most)
