"""The offline implementation of a channel: a local folder.

    sessions/<id>/    video.json, and video.mp4 as far as it was uploaded
    videos/<id>/      the same, complete, the thumbnail, and captions-<language>.vtt

A video is published atomically, by renaming its folder. Its id is derived from the mark, so one mark has one video,
however often it is started.
"""

from __future__ import annotations

import asyncio
import fcntl
import filecmp
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from retoma import GiveUp, private_files
from retoma.connections import TenantConnections
from retoma_apps.providers.youtube.errors import SessionGone
from retoma_apps.providers.youtube.port import (
    LocalizedTexts,
    OpenChannel,
    Published,
    State,
    Status,
    VideoToPublish,
    check_language,
)
from retoma_apps.providers.youtube.text_limits import fit_texts
from retoma_apps.providers.youtube.thumbnails import read_thumbnail

CHUNK_BYTES = 8 * 1024**2
_ID = re.compile(r"local-[0-9a-f]{12}")
_SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg"}


@dataclass(frozen=True)
class LocalVideo:
    """A video for a page. `thumbnail` is None until one is set. `captions` are WebVTT files by language."""

    video_id: str
    title: str
    description: str
    tags: tuple[str, ...]
    language: str
    synthetic: bool
    state: State
    sent_at: datetime
    publish_at: datetime | None
    video: Path
    thumbnail: Path | None
    localizations: Mapping[str, LocalizedTexts]
    captions: Mapping[str, Path]


class LocalChannel:
    """All processes that share the folder see one channel. `url` is the address of a video's page; `{id}` is its id."""

    name = "local"
    is_offline = True
    variables: tuple[str, ...] = ()

    def __init__(
        self,
        folder: Path,
        *,
        url: str = "/channel/{id}",
        chunk_bytes: int = CHUNK_BYTES,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._sessions = folder.absolute() / "sessions"
        self._videos = folder.absolute() / "videos"
        self._url = url
        self._chunk_bytes = chunk_bytes
        self._now = now

    @classmethod
    def for_tenant(cls, connections: TenantConnections, folder: Path, url: str) -> OpenChannel:
        """All accounts share the folder."""
        channel = cls(folder, url=url)
        return lambda _: channel

    async def begin(self, video: VideoToPublish, size: int) -> str:
        return await asyncio.to_thread(self._begin, fit_texts(video), size)

    async def send(self, session: str, path: Path) -> Published:
        return await asyncio.to_thread(self._send, session, path)

    async def find(self, mark: str) -> Published | None:
        found = _id_of(mark)
        return self._make_published(found) if (self._videos / found).is_dir() else None

    async def set_thumbnail(self, video_id: str, path: Path) -> None:
        await asyncio.to_thread(self._set_thumbnail, video_id, path)

    async def update_texts(self, video_id: str, video: VideoToPublish) -> None:
        await asyncio.to_thread(self._update_texts, video_id, fit_texts(video))

    async def set_captions(self, video_id: str, language: str, captions: bytes) -> None:
        path = self._get_folder(video_id) / f"captions-{check_language(language)}.vtt"
        await asyncio.to_thread(private_files.write_file, path, captions)

    async def delete(self, video_id: str) -> None:
        with suppress(FileNotFoundError):
            await asyncio.to_thread(shutil.rmtree, self._videos / _check_id(video_id))

    async def status(self, video_id: str) -> Status:
        found = await asyncio.to_thread(self._video, video_id)
        return Status("deleted", "its folder is gone") if found is None else Status(found.state, "", found.publish_at)

    async def videos(self) -> list[LocalVideo]:
        """Return all videos, newest first."""
        return await asyncio.to_thread(self._list_videos)

    async def video(self, video_id: str) -> LocalVideo | None:
        return await asyncio.to_thread(self._video, video_id)

    def _begin(self, video: VideoToPublish, size: int) -> str:
        found = _id_of(video.mark)
        if not (self._videos / found).is_dir():
            folder = self._sessions / found
            private_files.create_folder(self._sessions.parent)
            private_files.create_folder(folder)
            private_files.write_file(folder / "video.json", json.dumps(_to_json(video, size)))
        return f"local:{found}"

    def _send(self, session: str, path: Path) -> Published:
        found, size = _check_id(session.removeprefix("local:")), path.stat().st_size
        with suppress(FileNotFoundError), self._lock_folder(found) as folder:
            if not (self._videos / found).is_dir():
                stored = json.loads((folder / "video.json").read_bytes())
                _check_size(size, stored["size"])
                self._copy(path, folder / "video.mp4")
                self._publish(folder, stored)
        if not (self._videos / found).is_dir():
            raise SessionGone
        return self._make_published(found)

    def _publish(self, folder: Path, stored: dict[str, Any]) -> None:
        private_files.write_file(folder / "video.json", json.dumps(stored | {"sent_at": self._now().isoformat()}))
        private_files.create_folder(self._videos)
        folder.rename(self._videos / folder.name)

    @contextmanager
    def _lock_folder(self, found: str) -> Iterator[Path]:
        """Lock the session's folder for one process at a time. Raise FileNotFoundError if there is none."""
        folder = self._sessions / found
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(handle)

    def _copy(self, source: Path, target: Path) -> None:
        """Continue where the copy ends. Copy again from the start if a power failure corrupted it."""
        self._append(source, target)
        if not filecmp.cmp(source, target, shallow=False):
            target.unlink()
            self._append(source, target)

    def _append(self, source: Path, target: Path) -> None:
        with source.open("rb") as original, target.open("ab") as copied:
            original.seek(copied.tell())
            while part := original.read(self._chunk_bytes):
                self._add(part, copied)
            os.fsync(copied.fileno())

    def _add(self, part: bytes, copied: BinaryIO) -> None:
        copied.write(part)
        copied.flush()

    def _set_thumbnail(self, video_id: str, path: Path) -> None:
        content, kind = read_thumbnail(path)
        folder = self._get_folder(video_id)
        private_files.write_file(folder / f"thumbnail{_SUFFIXES[kind]}", content)
        for suffix in _SUFFIXES.values():
            if suffix != _SUFFIXES[kind]:
                (folder / f"thumbnail{suffix}").unlink(missing_ok=True)

    def _update_texts(self, video_id: str, video: VideoToPublish) -> None:
        path = self._get_folder(video_id) / "video.json"
        stored, changed = json.loads(path.read_bytes()), asdict(video)
        texts = {name: changed[name] for name in ("title", "description", "tags", "localizations")}
        private_files.write_file(path, json.dumps(stored | texts))

    def _get_folder(self, video_id: str) -> Path:
        folder = self._videos / _check_id(video_id)
        if not folder.is_dir():
            raise GiveUp("the channel has no such video", "NO_SUCH_VIDEO")
        return folder

    def _list_videos(self) -> list[LocalVideo]:
        names = [each.name for each in self._videos.iterdir()] if self._videos.is_dir() else []
        found = [video for name in names if (video := self._video(name)) is not None]
        return sorted(found, key=lambda video: video.sent_at, reverse=True)

    def _video(self, video_id: str) -> LocalVideo | None:
        if not _ID.fullmatch(video_id):
            return None
        try:
            stored = json.loads((self._videos / video_id / "video.json").read_bytes())
        except FileNotFoundError:
            return None
        return self._to_local_video(video_id, stored)

    def _to_local_video(self, video_id: str, stored: dict[str, Any]) -> LocalVideo:
        folder = self._videos / video_id
        publish_at = datetime.fromisoformat(stored["publish_at"]) if stored["publish_at"] else None
        return LocalVideo(
            video_id,
            stored["title"],
            stored["description"],
            tuple(stored["tags"]),
            stored["language"],
            stored["synthetic"],
            "published" if publish_at is None or publish_at <= self._now() else "processed",
            datetime.fromisoformat(stored["sent_at"]),
            publish_at,
            folder / "video.mp4",
            next((each for each in sorted(folder.glob("thumbnail.*")) if each.suffix in _SUFFIXES.values()), None),
            {language: LocalizedTexts(**each) for language, each in stored.get("localizations", {}).items()},
            {each.stem.removeprefix("captions-"): each for each in sorted(folder.glob("captions-*.vtt"))},
        )

    def _make_published(self, video_id: str) -> Published:
        return Published(video_id, self._url.replace("{id}", video_id))


def _id_of(mark: str) -> str:
    return f"local-{sha256(mark.encode()).hexdigest()[:12]}"


def _check_id(value: str) -> str:
    """Return a valid id. It names a folder, so no other value may pass."""
    if not _ID.fullmatch(value):
        raise GiveUp("this is not a session or video of this channel", "SESSION_INVALID")
    return value


def _check_size(size: int, promised: int) -> None:
    if not size:
        raise GiveUp("the video is empty: there is nothing to publish", "EMPTY_VIDEO")
    if size != promised:
        raise GiveUp(f"this session expects {promised} bytes, but the file has {size}", "SESSION_INVALID")


def _to_json(video: VideoToPublish, size: int) -> dict[str, Any]:
    publish_at = video.publish_at.isoformat() if video.publish_at else None
    return asdict(video) | {"publish_at": publish_at, "size": size}
