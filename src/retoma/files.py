"""The file store: a folder on this machine, or an S3 bucket.

Keys are generated, from the content's digest or as `gpu/<job>/<revision>/video_1.mp4`. Names from callers are labels,
never part of a path.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
import re
import tempfile
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import obstore
from obstore.store import LocalStore, ObjectStore, S3Store
from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from retoma import private_files
from retoma.define.file import File
from retoma.errors import TooLarge
from retoma.masking import register_home

PREFIX = re.compile(r"^([A-Za-z0-9_-]{1,64}/){1,8}$")
KEY = re.compile(r"([A-Za-z0-9_-]{1,64}/){0,8}[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
DIGEST = re.compile(r"[0-9a-f]{64}")
FRESH_FOR = timedelta(hours=1)  # within which the same content is not stored again
_CONTENT, _ASIDE = "content", "aside"
LINK_LIFETIME = timedelta(days=7)  # the longest lifetime that S3 signs
SPOOL_BYTES = 1 << 20  # a larger file goes through a temporary file while it is saved
SECONDS_IN_USE = 3_600.0  # for which a copy stays after its last use
SECONDS_BETWEEN_CLEANUPS = 60.0


class FileSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="RETOMA_", env_file=".env", extra="ignore")

    home: Path = Field(Path(".retoma"), validate_default=True)
    public_url: str | None = Field(
        None, description="The public URL of the server; links to local files start with it."
    )
    files_url: str | None = Field(
        None,
        description="s3://bucket/prefix, with ?endpoint=https://... for services other than Amazon's. Unset: a folder. "
        "The keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    )
    files_public_url: str | None = Field(
        None,
        description="The URL of a bucket that everyone can read. Unset: links are signed and valid for seven days.",
    )
    files_cache_gb: float = Field(
        10.0,
        ge=0,
        description="The size in GB of local copies of the bucket's files. Beyond it the oldest are deleted, except "
        "those used in the last hour.",
    )

    @field_validator("home")
    @classmethod
    def _make_absolute(cls, home: Path) -> Path:
        return home.absolute()


@dataclass(frozen=True)
class StoredFile:
    digest: str
    size: int


@dataclass(frozen=True)
class OpenedFile:
    """A stored file, to be read once."""

    size: int
    media_type: str
    chunks: AsyncIterator[bytes]


class FileStore:
    def __init__(
        self, store: ObjectStore, public_url: str | None, folder: Path, cache_bytes: float | None = None
    ) -> None:
        """Without a `public_url`, links are signed, which only S3 supports. `folder` holds the files themselves, or up
        to `cache_bytes` of copies."""
        self._store = store
        self._public_url = public_url
        self._folder = folder
        self._cache_bytes = cache_bytes
        self._cleaned_at = -SECONDS_BETWEEN_CLEANUPS

    async def save(
        self, content: bytes | Path | AsyncIterable[bytes], *, name: str = "", max_bytes: int | None = None
    ) -> File:
        """Store this content, once if it is already stored. Raise TooLarge if it has more than `max_bytes`."""
        digest, size = sha256(), 0
        with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
            async for chunk in _read_chunks(content):
                size += len(chunk)
                if max_bytes is not None and size > max_bytes:
                    raise TooLarge(f"the file has more than {max_bytes:,} bytes")
                digest.update(chunk)
                spool.write(chunk)
            saved = File(file=digest.hexdigest(), name=name[:500], size=size, media_type=_guess_media_type(name))
            if not await self._is_fresh(_content_key(saved.file), size):
                spool.seek(0)
                await self._put(_content_key(saved.file), spool)
        return saved

    async def _is_fresh(self, key: str, size: int) -> bool:
        """Return whether this content is stored and is so new that it counts as stored now.

        Otherwise it is stored again, because a file that nothing names is deleted when it is old.
        """
        try:
            found = await obstore.head_async(self._store, key)
        except FileNotFoundError:
            return False
        return found["size"] == size and datetime.now(UTC) - found["last_modified"] < FRESH_FOR

    async def has(self, file: File) -> bool:
        """Return whether the content is stored, with the size of the file."""
        size = await self.get_size(_content_key(file.file))
        if size is None and await self.bring_back(file.file):
            size = await self.get_size(_content_key(file.file))
        return size == file.size

    async def load(self, file: File) -> bytes:
        """Return the whole content. Raise FileNotFoundError if it is not stored."""
        opened = await self.open_file(file)
        if opened is None:
            raise FileNotFoundError(f"the file store has no file with the digest {file.file}")
        return b"".join([chunk async for chunk in opened.chunks])

    async def open_file(self, file: File, part: tuple[int, int] | None = None) -> OpenedFile | None:
        """Open the content, or its bytes from the first up to, but not including, the second position."""
        opened = await self.open_key(_content_key(file.file), part)
        if opened is None and await self.bring_back(file.file):
            opened = await self.open_key(_content_key(file.file), part)
        return opened

    async def get_path(self, file: File) -> Path:
        """Return the local path of the content, which is fetched if necessary. Do not write to it.

        Raise FileNotFoundError if it is not stored. A copy that was not used in the last hour may be deleted.
        """
        path = self._folder / _content_key(file.file)
        if not _exists(path, touch=self._cache_bytes is not None):
            await self._fetch_copy(file, path)
            await self._evict_copies()
        return path

    async def _fetch_copy(self, file: File, to: Path) -> None:
        found = await self.open_file(file)
        if found is None:
            raise FileNotFoundError(f"the file store has no file with the digest {file.file}")
        with _write_atomically(to) as new:
            async for chunk in found.chunks:
                await asyncio.to_thread(new.write, chunk)

    async def _evict_copies(self) -> None:
        if self._cache_bytes is not None and time.monotonic() - self._cleaned_at >= SECONDS_BETWEEN_CLEANUPS:
            self._cleaned_at = time.monotonic()
            await asyncio.to_thread(_delete_oldest, self._folder, self._cache_bytes)

    async def list_old(self, shard: int, age: timedelta, *, set_aside: bool = False) -> list[StoredFile]:
        """Return the files of one of 256 shards that are at least this old; or those set aside that long ago."""
        folder = f"{_ASIDE if set_aside else _CONTENT}/{shard:02x}/"
        until = datetime.now(UTC) - age
        found = []
        async for batch in obstore.list(self._store, folder):
            for one in batch:
                digest = one["path"].rpartition("/")[2]
                if one["last_modified"] <= until and DIGEST.fullmatch(digest):
                    found.append(StoredFile(digest, one["size"]))
        return found

    async def set_aside(self, digest: str) -> None:
        """Take content out of use. A reader still finds it, and brings it back.

        So an upload that saw it at this moment loses nothing; the content is deleted if nobody needs it for a while.
        """
        path = self._folder / _content_key(digest)
        if not isinstance(self._store, S3Store):
            _exists(path, touch=True)  # from now on its time says when it was set aside
        with suppress(FileNotFoundError):
            await obstore.rename_async(self._store, _content_key(digest), _aside_key(digest))

    async def bring_back(self, digest: str) -> bool:
        """Put content that was set aside back in use. Return whether there was any."""
        if not DIGEST.fullmatch(digest):
            return False
        try:
            await obstore.rename_async(self._store, _aside_key(digest), _content_key(digest))
        except FileNotFoundError:
            return await self.get_size(_content_key(digest)) is not None  # another reader did it
        return True

    async def delete_aside(self, digest: str) -> None:
        """Delete content that was set aside, for good."""
        with suppress(FileNotFoundError):
            await obstore.delete_async(self._store, _aside_key(digest))

    async def put(self, path: Path, key: str) -> str:
        """Store a file under this key, atomically, and return its URL. Replaces a file with the same key."""
        await self._put(_check_key(key), path, {"Content-Type": _guess_media_type(key)})
        return await self.get_url(key)

    async def write_key(self, key: str, content: IO[bytes]) -> None:
        """Store content under this key, atomically. Replaces a file with the same key."""
        await self._put(_check_key(key), content, {"Content-Type": _guess_media_type(key)})

    async def list_keys(self) -> AsyncIterator[tuple[str, int]]:
        """Yield the key and the size of each stored file. Content that is set aside has the key that it has in use.

        Content may come twice, and one that is set aside or brought back meanwhile may not come at all.
        """
        async for batch in obstore.list(self._store):
            for found in batch:
                if KEY.fullmatch(found["path"]):
                    digest = get_digest(found["path"])
                    yield _content_key(digest) if digest else found["path"], found["size"]

    async def open_in_place(self, key: str) -> OpenedFile | None:
        """Open the file as `open_key` does; if it is set aside, without bringing it back."""
        opened, digest = await self.open_key(key), get_digest(key)
        if opened is None and digest is not None:
            # The last one is for content that was brought back between the first two.
            opened = await self.open_key(_aside_key(digest)) or await self.open_key(key)
        return opened

    @property
    def is_local(self) -> bool:
        return isinstance(self._store, LocalStore)

    @property
    def location(self) -> str:
        """Return the folder, or the bucket with its prefix."""
        if isinstance(self._store, S3Store):
            return "/".join(filter(None, (f"s3://{self._store.config['bucket']}", self._store.prefix)))
        return str(self._folder)

    async def _put(self, key: str, content: Any, attributes: Any = None) -> None:
        if isinstance(self._store, S3Store):
            await obstore.put_async(self._store, key, content, attributes=attributes)
        else:
            await obstore.put_async(self._store, key, content)
            private_files.restrict_permissions(self._folder / key)

    async def get_url(self, key: str) -> str:
        if self._public_url is not None:
            return f"{self._public_url.rstrip('/')}/{_check_key(key)}"
        assert isinstance(self._store, S3Store)
        return await obstore.sign_async(self._store, "GET", _check_key(key), LINK_LIFETIME)

    async def get_size(self, key: str) -> int | None:
        """Return the size, or None if there is no such file or the key is invalid."""
        if not KEY.fullmatch(key):
            return None
        try:
            return (await obstore.head_async(self._store, key))["size"]
        except FileNotFoundError:
            return None

    async def open_key(self, key: str, part: tuple[int, int] | None = None) -> OpenedFile | None:
        """Open the file, or a part of its bytes as `open_file` does. Return None if there is no such file."""
        if not KEY.fullmatch(key):
            return None
        try:
            found = await obstore.get_async(self._store, key, options={"range": part} if part else {})
        except FileNotFoundError:
            return None
        first, end = found.range
        return OpenedFile(end - first, _guess_media_type(key), _stream_chunks(found))


def create_file_store(settings: FileSettings) -> FileStore:
    if settings.files_url is None:
        return _create_local_store(settings)
    parts = urlsplit(settings.files_url)
    if parts.scheme != "s3" or not parts.netloc:
        raise ValueError("RETOMA_FILES_URL must be s3://bucket/prefix, or unset to use a folder on this machine")
    store = _create_bucket_store(parts.netloc, parts.path.strip("/"), parse_qs(parts.query))
    folder = private_files.create_folder(_prepare_home(settings) / "fetched")
    return FileStore(store, settings.files_public_url, folder, settings.files_cache_gb * 1e9)


def _create_local_store(settings: FileSettings) -> FileStore:
    folder = private_files.create_folder(_prepare_home(settings) / "files")
    return FileStore(LocalStore(folder, mkdir=True), f"{(settings.public_url or '').rstrip('/')}/files", folder)


def _prepare_home(settings: FileSettings) -> Path:
    register_home(settings.home)
    return private_files.create_home(settings.home)


def _create_bucket_store(name: str, prefix: str, options: dict[str, list[str]]) -> S3Store:
    config: dict[str, Any] = {name: values[0] for name, values in options.items() if name in ("endpoint", "region")}
    if "endpoint" in config:
        allow_http = config["endpoint"].startswith("http:")
        config = {"region": "us-east-1", "client_options": {"allow_http": allow_http}} | config
    return S3Store(name, prefix=prefix or None, **config)


def _check_key(key: str) -> str:
    if not KEY.fullmatch(key):
        raise ValueError(f"not a valid key of a file: {key[:80]!r}")
    return key


async def _stream_chunks(found: obstore.GetResult) -> AsyncIterator[bytes]:
    async for chunk in found.stream(min_chunk_size=256 * 1024):
        yield bytes(chunk)


async def _read_chunks(content: bytes | Path | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    if isinstance(content, Path):
        with content.open("rb") as file:
            while chunk := await asyncio.to_thread(file.read, SPOOL_BYTES):
                yield chunk
        return
    async for chunk in content:
        yield chunk


def get_digest(key: str) -> str | None:
    """Return the SHA-256 that a key is made of, in use or set aside, or None if it has a key of another kind."""
    folder, _, name = key.partition("/")
    return name.rpartition("/")[2] if folder in (_CONTENT, _ASIDE) else None


def _content_key(digest: str) -> str:
    return f"{_CONTENT}/{digest[:2]}/{digest}"


def _aside_key(digest: str) -> str:
    return f"{_ASIDE}/{digest[:2]}/{digest}"


@contextmanager
def _write_atomically(path: Path) -> Iterator[IO[bytes]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{uuid4()}")
    try:
        with open(new, "xb", opener=private_files.opener) as file:
            yield file
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _exists(path: Path, *, touch: bool) -> bool:
    """Return whether the file exists. Touching it keeps the copy for now."""
    try:
        os.utime(path) if touch else path.stat()
    except FileNotFoundError:
        return False
    return True


def _delete_oldest(folder: Path, max_bytes: float) -> None:
    """Delete the oldest copies, including partial ones of killed processes, until `max_bytes` are left."""
    found = sorted(_list_copies(folder))
    excess = sum(size for _, size, _ in found) - max_bytes
    for touched_at, size, path in found:
        if excess <= 0 or touched_at > time.time() - SECONDS_IN_USE:
            break
        path.unlink(missing_ok=True)
        excess -= size


def _list_copies(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield last use, size and path of each copy. Other processes may delete some meanwhile."""
    for path in folder.glob("content/*/*"):
        with suppress(FileNotFoundError):
            stat = path.stat()
            yield stat.st_mtime, stat.st_size, path


def _guess_media_type(key: str) -> str:
    return mimetypes.guess_type(key)[0] or "application/octet-stream"
