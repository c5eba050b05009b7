"""The port for video channels: YouTube, its stand-in, or a local folder.

A video is published once, however often its sender dies, if the caller follows this order:

    session = await ctx.once("session", lambda: channel.begin(video, size))
    published = await channel.send(session, path)

If `send` raises SessionGone, the caller must call `find` with the video's mark before a new `begin`. The caller can do
all of this within one `ctx.once` with `find` and `delete`, so that a cancelled run leaves no video.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Literal, Protocol

from retoma.connections import TenantConnections
from retoma_apps.providers.provider import Provider

State = Literal["uploaded", "processed", "published", "failed", "rejected", "deleted"]
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,2}")
_MARK = re.compile(r"retoma-[a-z0-9]{8,40}")


def mark_of(key: str) -> str:
    """Return the tag that identifies a video: the same for the same key, and without revealing the key."""
    return f"retoma-{sha256(key.encode()).hexdigest()[:16]}"


def is_mark(tag: str) -> bool:
    return _MARK.fullmatch(tag) is not None


@dataclass(frozen=True)
class LocalizedTexts:
    """The texts of a video in another language."""

    title: str
    description: str = ""


@dataclass(frozen=True)
class VideoToPublish:
    """Texts longer than a channel accepts are cut to fit. Without `publish_at` the video is public immediately.

    `credits` are lines below the description, which is cut to leave room for them. `localizations` are by language, as
    a BCP 47 tag.
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
    localizations: Mapping[str, LocalizedTexts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not is_mark(self.mark):
            raise ValueError(f"{self.mark[:60]!r} is not a mark: create one with mark_of(key)")
        if self.publish_at is not None and self.publish_at.tzinfo is None:
            raise ValueError("publish_at needs a time zone")
        for language in self.localizations:
            check_language(language)


def check_language(language: str) -> str:
    """Return a language tag. It becomes part of requests and file names, so raise ValueError for any other text."""
    if not _LANGUAGE.fullmatch(language):
        raise ValueError(f"{language[:40]!r} is not a language tag such as en or pt-BR")
    return language


@dataclass(frozen=True)
class Published:
    video_id: str
    url: str


@dataclass(frozen=True)
class Status:
    """An `uploaded` video is being processed; the owner can watch a `processed` one, everyone a `published` one."""

    state: State
    reason: str = ""
    publish_at: datetime | None = None


class Channel(Protocol):
    """`is_offline` if it is on this machine, without a service."""

    name: str
    is_offline: bool

    async def begin(self, video: VideoToPublish, size: int) -> str:
        """Open a session for a file of `size` bytes. Record it before sending any byte. It is a secret."""

    async def send(self, session: str, path: Path) -> Published:
        """Send the rest of the file. A session that is already complete creates no second video.

        Raise SessionGone if the session has expired: call `find` before a new `begin`.
        """

    async def find(self, mark: str) -> Published | None:
        """Return the video with this mark, if there is one. Failed and deleted videos do not count."""

    async def set_thumbnail(self, video_id: str, path: Path) -> None:
        """Set a PNG or JPEG of at most 2 MB. A second one replaces the first.

        Raise GiveUp if it is rejected or the account may not set any: the video stays published without it.
        """

    async def update_texts(self, video_id: str, video: VideoToPublish) -> None:
        """Replace title, description, tags and localizations of a published video. Its film and its times stay.

        Raise GiveUp if the channel has no such video.
        """

    async def set_captions(self, video_id: str, language: str, captions: bytes) -> None:
        """Set the subtitle track in this language, as WebVTT. A second one replaces the first.

        Raise GiveUp if it is rejected or the account may not set any: the video stays published without it.
        """

    async def delete(self, video_id: str) -> None:
        """Delete a video. Nothing happens if it is already gone."""

    async def status(self, video_id: str) -> Status: ...


OpenChannel = Callable[[str], Channel]
"""Returns the channel of an account."""


class ChannelProvider(Channel, Provider, Protocol):
    """What a class needs to be registered."""

    @classmethod
    def for_tenant(cls, connections: TenantConnections, folder: Path, url: str) -> OpenChannel | None:
        """Return None if neither the tenant's connections nor the environment configure it.

        A channel on this machine keeps its videos in `folder`, each with a page
        at `url`, in which `{id}` is its id."""
