"""Where outputs are kept: a local folder, which the server shows under /files/, or a bucket of S3.

A key is made by us (`gpu/<job>/<revision>/video_1.mp4`); what a caller names is a label and never part of a path.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import obstore
from obstore.store import LocalStore, ObjectStore, S3Store
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = re.compile(r"^([A-Za-z0-9_-]{1,64}/){1,8}$")
KEY = re.compile(r"([A-Za-z0-9_-]{1,64}/){0,8}[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
LINKS_LAST = timedelta(days=7)  # the longest that S3 signs for


class FileSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="RETOMA_", env_file=".env", extra="ignore")

    home: Path = Path(".retoma")
    public_url: str | None = Field(None, description="Where the server is reached; local files are shown under it.")
    files_url: str | None = Field(
        None,
        description="s3://bucket/prefix, with ?endpoint=https://... for other makes than Amazon's. Unset: a folder. "
        "The keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    )
    files_public_url: str | None = Field(
        None, description="Where the bucket can be read by all. Unset: links are signed and last seven days."
    )


@dataclass(frozen=True)
class Opened:
    """A kept file, to be read once."""

    size: int
    media_type: str
    chunks: AsyncIterator[bytes]


class Files:
    def __init__(self, store: ObjectStore, public_url: str | None) -> None:
        """With no `public_url` links are signed, which only S3 can do."""
        self._store = store
        self._public_url = public_url

    async def put(self, path: Path, key: str) -> str:
        """Keep a file under this key, whole or not at all, and give its URL. The same key is written over."""
        attributes = {"Content-Type": _media_type(key)} if isinstance(self._store, S3Store) else None
        await obstore.put_async(self._store, _checked(key), path, attributes=attributes)
        return await self.url(key)

    async def url(self, key: str) -> str:
        if self._public_url is not None:
            return f"{self._public_url.rstrip('/')}/{_checked(key)}"
        assert isinstance(self._store, S3Store)
        return await obstore.sign_async(self._store, "GET", _checked(key), LINKS_LAST)

    async def size(self, key: str) -> int | None:
        """None if there is no such file, also for keys that none can have."""
        if not KEY.fullmatch(key):
            return None
        try:
            return (await obstore.head_async(self._store, key))["size"]
        except FileNotFoundError:
            return None

    async def open(self, key: str, part: tuple[int, int] | None = None) -> Opened | None:
        """The file, or its bytes from one to before another. None as for `size`."""
        if not KEY.fullmatch(key):
            return None
        try:
            found = await obstore.get_async(self._store, key, options={"range": part} if part else {})
        except FileNotFoundError:
            return None
        first, end = found.range
        return Opened(end - first, _media_type(key), _chunks(found))


def files_of(settings: FileSettings) -> Files:
    if settings.files_url is None:
        return _local(settings)
    parts = urlsplit(settings.files_url)
    if parts.scheme != "s3" or not parts.netloc:
        raise ValueError("RETOMA_FILES_URL is s3://bucket/prefix, or unset for a folder of this machine")
    return Files(_bucket(parts.netloc, parts.path.strip("/"), parse_qs(parts.query)), settings.files_public_url)


def filename(label: str) -> str:
    """`video_1.mp4` for the label `1`. One that would be unsafe in a path becomes a digest of itself."""
    is_safe = re.fullmatch(r"[A-Za-z0-9_-]{1,64}", label) is not None
    safe = label if is_safe else sha256(label.encode(errors="surrogatepass")).hexdigest()[:32]
    return f"video_{safe}.mp4"


def _local(settings: FileSettings) -> Files:
    folder = settings.home.absolute() / "files"
    return Files(LocalStore(folder, mkdir=True), f"{(settings.public_url or '').rstrip('/')}/files")


def _bucket(name: str, prefix: str, options: dict[str, list[str]]) -> S3Store:
    given: dict[str, Any] = {name: values[0] for name, values in options.items() if name in ("endpoint", "region")}
    if "endpoint" in given:
        given = {"region": "us-east-1", "client_options": {"allow_http": given["endpoint"].startswith("http:")}} | given
    return S3Store(name, prefix=prefix or None, **given)


def _checked(key: str) -> str:
    if not KEY.fullmatch(key):
        raise ValueError(f"this cannot be the key of a file: {key[:80]!r}")
    return key


async def _chunks(found: obstore.GetResult) -> AsyncIterator[bytes]:
    async for chunk in found.stream(min_chunk_size=256 * 1024):
        yield bytes(chunk)


def _media_type(key: str) -> str:
    return mimetypes.guess_type(key)[0] or "application/octet-stream"
