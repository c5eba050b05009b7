"""The offline implementation of a blog: a local folder.

    <key>/<revision>/    article.html, and the images
    <key>/job.json       the answer to the last publication

The answer is written last, so a publication that was interrupted is repeated as a whole.
"""

from __future__ import annotations

import asyncio
import fcntl
import html
import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from retoma import GiveUp, private_files
from retoma.connections import TenantConnections
from retoma_apps.providers.wordpress.port import (
    Article,
    BlogInfo,
    BlogSite,
    JobStatus,
    OpenBlog,
    PostLink,
    Publication,
    Published,
)


class LocalBlog:
    """All processes that share the folder see one blog. All its drafts have the site 1."""

    name = "local"
    is_offline = True
    variables: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    @classmethod
    def for_tenant(cls, connections: TenantConnections, folder: Path) -> OpenBlog:
        """All names share the folder."""
        blog = cls(folder)
        return lambda _: blog

    async def publish(self, publication: Publication) -> Published:
        return await asyncio.to_thread(self._publish, publication)

    async def get_job(self, idempotency_key: str) -> JobStatus | None:
        return await asyncio.to_thread(self._read_status, idempotency_key)

    async def mark(self, idempotency_key: str, note: str) -> JobStatus | None:
        return await asyncio.to_thread(self._mark, idempotency_key, note)

    async def list_posts(self, blog_id: int | None = None) -> list[PostLink]:
        """Return none: all posts here are drafts."""
        return []

    async def ping(self) -> BlogInfo:
        url = self._folder.as_uri()
        return BlogInfo("Local folder", url, 1, (BlogSite(1, "Local folder", url),), "offline", "offline", 16 * 1024**2)

    async def close(self) -> None:
        return

    def _publish(self, publication: Publication) -> Published:
        digest = _hash_article(publication.article)
        with self._lock(publication.idempotency_key) as folder:
            stored = _read_json(folder / "job.json")
            if stored is not None and stored["revision"] >= publication.revision:
                _check_replay(stored, publication, digest)
                return self._to_published(folder, stored, is_replay=True)
            written = _write_article(folder / str(publication.revision), publication.article)
            stored = {
                "job_id": publication.job_id,
                "revision": publication.revision,
                "digest": digest,
                "path": str(written),
                "note": None,
            }
            private_files.write_file(folder / "job.json", json.dumps(stored))
            return self._to_published(folder, stored, is_replay=False)

    def _mark(self, key: str, note: str) -> JobStatus | None:
        with self._lock(key) as folder:
            stored = _read_json(folder / "job.json")
            if stored is not None:
                private_files.write_file(folder / "job.json", json.dumps(stored | {"note": note}))
        return self._read_status(key)

    def _read_status(self, key: str) -> JobStatus | None:
        stored = _read_json(self._folder / key / "job.json")
        if stored is None:
            return None
        return JobStatus(
            stored["job_id"], _get_post_id(key), "draft", "done", stored["revision"], 1, note=stored["note"]
        )

    def _to_published(self, folder: Path, stored: dict[str, Any], *, is_replay: bool) -> Published:
        url = Path(stored["path"]).as_uri()
        return Published(stored["job_id"], _get_post_id(folder.name), "done", stored["revision"], url, is_replay)

    @contextmanager
    def _lock(self, key: str) -> Iterator[Path]:
        private_files.create_folder(self._folder)
        folder = private_files.create_folder(self._folder / key)
        with (folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder


def _check_replay(stored: dict[str, Any], publication: Publication, digest: str) -> None:
    if stored["revision"] > publication.revision:
        raise GiveUp(f"revision {stored['revision']} of this article is already published", "STALE_REVISION")
    if stored["digest"] != digest:
        raise GiveUp(f"revision {publication.revision} was published with another text", "IDEMPOTENCY_DUPLICATE")


def _write_article(folder: Path, article: Article) -> Path:
    private_files.create_folder(folder)
    content = article.content
    for image in article.images:
        file = f"{sha256(image.key.encode()).hexdigest()[:12]}{Path(image.filename).suffix}"
        (folder / file).write_bytes(image.content)
        figure = f'<figure><img src="{html.escape(file)}" alt="{html.escape(image.alt)}"></figure>'
        content = content.replace(image.placeholder, figure)
    page = folder / "article.html"
    title = html.escape(article.title)
    private_files.write_file(
        page, f'<!doctype html>\n<meta charset="utf-8">\n<title>{title}</title>\n<h1>{title}</h1>\n{content}\n'
    )
    return page


def _hash_article(article: Article) -> str:
    return sha256(b"\0".join([repr(article).encode(), *(image.content for image in article.images)])).hexdigest()


def _get_post_id(key: str) -> int:
    """Return a number that is always the same for a key, from 1 on."""
    return int(sha256(key.encode()).hexdigest()[:7], 16) + 1


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return found
