"""The port to whatever shows videos: YouTube, its stand-in, or a folder of this machine.

A video is published once, however often its sender dies, if the caller keeps to this order:

    session = await ctx.once("session", lambda: channel.begin(video, size))
    published = await channel.send(session, path)

and, if `send` raises SessionGone, asks `find` for the video's mark before it begins anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Literal, Protocol

"""Told how many bytes of how many have been taken."""
State = Literal["uploaded", "processed", "published", "failed", "rejected", "deleted"]
_MARK = re.compile(r"retoma-[a-z0-9]{8,40}")


def mark_of(key: str) -> str:
    """The tag by which a video is found again: the same for the same key, and telling nothing of it."""
    return f"retoma-{sha256(key.encode()).hexdigest()[:16]}"


def is_mark(tag: str) -> bool:
    return _MARK.fullmatch(tag) is not None


@dataclass(frozen=True)
class VideoToPublish:
    """Texts may be longer than a channel takes: they are cut to fit. Without `publish_at` it is public at once.

    `credits` are lines that stand below the description, which is cut to leave room for them.
    """

    title: str
    mark: str
    description: str = ""
    credits: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    language: str = "pt-BR"
    publish_at: datetime | None = None
    made_for_kids: bool = False
    synthetic: bool = True

    def __post_init__(self) -> None:
        if not is_mark(self.mark):
            raise ValueError(f"{self.mark[:60]!r} is no mark: make one with mark_of(key)")
        if self.publish_at is not None and self.publish_at.tzinfo is None:
            raise ValueError("publish_at needs a time zone")


@dataclass(frozen=True)
class Published:
    video_id: str
    url: str


@dataclass(frozen=True)
class Status:
    """`uploaded` is still being processed; `processed` can be watched by its owner, and by all once `published`."""

    state: State
    reason: str = ""
    publish_at: datetime | None = None


class Channel(Protocol):
    name: str

    async def begin(self, video: VideoToPublish, size: int) -> str:
        """Open a session for a file of `size` bytes. Record it before any byte is sent. It is a secret."""

    async def send(self, session: str, path: Path) -> Published:
        """Send what the session does not have yet. A session that was complete already makes no second video.

        Raises SessionGone if the session has ended without a trace: then ask `find` before beginning anew.
        """

    async def find(self, mark: str) -> Published | None:
        """The video that carries this mark, if one was taken. One that failed or was deleted does not count."""

    async def set_thumbnail(self, video_id: str, path: Path) -> None:
        """A PNG or JPEG of at most 2 MB. It may be set again, and then replaces the one before.

        Raises GiveUp if it is not taken, also if the account may not set any: the video stands without it.
        """

    async def status(self, video_id: str) -> Status: ...
