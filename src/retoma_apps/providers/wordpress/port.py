"""The port for blogs: WordPress with the plugin AutoWriter, or a local folder.

An article is published once, however often its sender dies: its idempotency key names one post, and its revision one
version of that post. So `publish` may be called again with the same publication until it returns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, Field

from retoma.connections import TenantConnections
from retoma_apps.providers.provider import Provider

ImageKind = Literal["featured", "inline"]
PublishedState = Literal["done", "partial"]
JobState = Literal["publishing", "done", "partial", "failed"]
EventKind = Literal["media_ok", "media_failed", "seo_applied", "done"]
_KEY = re.compile(r"[0-9a-f]{64}")
_IMAGE_KEY = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_YEARS = range(1970, 9_001)  # a time zone moves none of them beyond what Python can represent


def _check_year(at: datetime) -> datetime:
    if at.year not in _YEARS:
        raise ValueError(f"the year is not between {_YEARS[0]} and {_YEARS[-1]}")
    return at


def _check_json(detail: Mapping[str, Any]) -> Mapping[str, Any]:
    json.dumps(detail, allow_nan=False)  # raises ValueError for NaN and Infinity, which are not JSON
    return detail


EventTime = Annotated[datetime, AfterValidator(_check_year)]
EventDetail = Annotated[Mapping[str, Any], AfterValidator(_check_json)]


@dataclass(frozen=True)
class Image:
    """`key` identifies the image on its blog: an image with the same key is stored once."""

    key: str
    kind: ImageKind
    filename: str
    mime: str
    content: bytes = field(repr=False)
    alt: str = ""

    def __post_init__(self) -> None:
        if not _IMAGE_KEY.fullmatch(self.key):
            raise ValueError(f"{self.key[:60]!r} is not a key of an image: use 1 to 128 letters, digits or . _ : -")

    @property
    def placeholder(self) -> str:
        """The HTML comment that an inline image replaces in the content."""
        return f"<!-- autowriter:image {self.key} -->"


@dataclass(frozen=True)
class Seo:
    title: str = ""
    description: str = ""
    focus_keyword: str = ""


@dataclass(frozen=True)
class Article:
    """`content` is HTML. Categories and tags are names; missing ones are created."""

    title: str
    content: str
    slug: str = ""
    excerpt: str = ""
    language: str = ""
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    seo: Seo = Seo()
    images: tuple[Image, ...] = ()


@dataclass(frozen=True)
class Publication:
    """One revision of an article. `blog_id` is a site of a network, or None for the site that is called.

    `force` overwrites a post that a person edited, and replaces one that a person deleted by a new draft.
    """

    idempotency_key: str
    job_id: str
    revision: int
    article: Article
    blog_id: int | None = None
    force: bool = False

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.idempotency_key):
            raise ValueError(f"{self.idempotency_key[:80]!r} is not an idempotency key: use 64 hexadecimal digits")
        if self.revision < 1:
            raise ValueError("revisions are numbered from 1")


@dataclass(frozen=True)
class Event:
    """What happened to a job. `sequence` numbers the events of a job from 1, without gaps."""

    id: str
    sequence: int
    kind: EventKind
    revision: int
    at: EventTime
    detail: EventDetail = field(default_factory=dict)


@dataclass(frozen=True)
class MissingImage:
    """An image that is not in the post."""

    code: str
    image: str
    message: str


@dataclass(frozen=True)
class Published:
    """The draft. `partial` means that images are missing; `is_replay` that this revision was published before."""

    job_id: str
    post_id: int
    status: PublishedState
    revision: int
    edit_url: str
    is_replay: Annotated[bool, Field(validation_alias="replay")] = False
    warnings: tuple[MissingImage, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(frozen=True)
class JobStatus:
    """`post_status` is WordPress's, such as `draft` or `publish`, and None if there is no such post.

    `is_edited` means that a person changed the post since it was published. `steps` has when each step began.
    """

    job_id: str
    post_id: int | None
    post_status: str | None
    status: JobState
    revision: int
    blog_id: int
    is_edited: Annotated[bool, Field(validation_alias="edited")] = False
    note: str | None = None
    error: Mapping[str, str] | None = None
    steps: Mapping[str, datetime] = field(default_factory=dict)
    events: tuple[Event, ...] = ()


@dataclass(frozen=True)
class BlogSite:
    blog_id: int
    name: str
    url: str


@dataclass(frozen=True)
class PostLink:
    """A published post, which other posts can link to."""

    url: str
    title: str


@dataclass(frozen=True)
class BlogInfo:
    """`sites` are those that our secret gives access to. A publication may have `max_body_bytes`, in JSON."""

    site_name: str
    site_url: str
    blog_id: int
    sites: tuple[BlogSite, ...]
    plugin_version: str
    wordpress_version: str
    max_body_bytes: int


class Blog(Protocol):
    """`is_offline` if it is on this machine, without a service."""

    name: str
    is_offline: bool

    async def publish(self, publication: Publication) -> Published:
        """Create the draft of an article, or update its post if the revision is newer. Never changes a post's status.

        Raise PostChanged if a person edited or deleted the post, unless `force`.
        """

    async def get_job(self, idempotency_key: str) -> JobStatus | None:
        """Return the status of an article with all its events, or None if the blog does not know it."""

    async def mark(self, idempotency_key: str, note: str) -> JobStatus | None:
        """Mark the draft of a rejected article with the reason, and leave it a draft. Return None if it is unknown."""

    async def list_posts(self, blog_id: int | None = None) -> list[PostLink]:
        """Return the newest hundred published posts of the site, or of a site of its network."""

    async def ping(self) -> BlogInfo:
        """Test the connection and the credentials."""

    async def close(self) -> None: ...


OpenBlog = Callable[[str], Blog]
"""Returns the blog with this name in the settings; the empty name is the only one."""


class BlogProvider(Blog, Provider, Protocol):
    """What a class needs to be registered."""

    @classmethod
    def for_tenant(cls, connections: TenantConnections, folder: Path) -> OpenBlog | None:
        """Return None if neither the tenant's connections nor the environment configure it.

        A blog on this machine keeps its drafts in `folder`."""
