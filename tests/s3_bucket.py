"""An S3 bucket in memory: the requests that the file store makes, in the wire format of S3."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import ClassVar
from urllib.parse import parse_qs, unquote

import pytest
from starlette.types import Receive, Scope, Send

from standins.server import serve_app

_COPIED = b"<CopyObjectResult><ETag>&quot;1&quot;</ETag></CopyObjectResult>"


class Bucket:
    """A bucket `files`. `objects` has the content and the time of each key."""

    name: ClassVar = "files"

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, datetime]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (part := await receive()).get("more_body"):
            body += part["body"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        key = scope["path"].removeprefix(f"/{self.name}").removeprefix("/")
        status, content, changed_at = self._answer(scope, key, headers, body + part.get("body", b""))
        sent = {
            "content-length": str(len(content)),
            "etag": '"1"',
            "last-modified": changed_at.strftime("%a, %d %b %Y %H:%M:%S GMT"),
        }
        encoded = [(name.encode(), value.encode()) for name, value in sent.items()]
        await send({"type": "http.response.start", "status": status, "headers": encoded})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else content})

    def _answer(self, scope: Scope, key: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, datetime]:
        now = datetime.now(UTC)
        if scope["method"] == "POST":  # of `?delete`
            deleted = [each for each in re.findall(r"<Key>(.*?)</Key>", body.decode()) if self.objects.pop(each, None)]
            return 200, _tag("DeleteResult", *(_tag("Deleted", _tag("Key", each)) for each in deleted or [""])), now
        if not key:
            return 200, self._list(parse_qs(scope["query_string"].decode()).get("prefix", [""])[0]), now
        source = unquote(headers.get("x-amz-copy-source", "")).lstrip("/").removeprefix(f"{self.name}/")
        if scope["method"] == "PUT" and (not source or source in self.objects):
            self.objects[key] = (self.objects[source][0] if source else body, now)
            return 200, _COPIED if source else b"", now
        if scope["method"] == "PUT" or key not in self.objects:
            return 404, b"", now
        return 200, *self.objects[key]

    def _list(self, prefix: str) -> bytes:
        found = [(key, *self.objects[key]) for key in sorted(self.objects) if key.startswith(prefix)]
        return _tag(
            "ListBucketResult",
            *(
                _tag(
                    "Contents",
                    _tag("Key", key),
                    _tag("LastModified", changed_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")),
                    _tag("Size", str(len(content))),
                )
                for key, content, changed_at in found
            ),
        )


def _tag(name: str, *content: str | bytes) -> bytes:
    inner = b"".join(each.encode() if isinstance(each, str) else each for each in content)
    return f"<{name}>".encode() + inner + f"</{name}>".encode()


@asynccontextmanager
async def serve_bucket(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Bucket, str]]:
    """Serve a bucket and yield it with the RETOMA_FILES_URL of a prefix in it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    bucket = Bucket()
    async with serve_app(bucket) as origin:
        yield bucket, f"s3://{bucket.name}/live?endpoint={origin}"
