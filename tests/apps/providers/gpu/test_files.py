from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retoma.files import FileSettings, FileStore, create_file_store
from tests.apps.providers.gpu.conftest import Switch

KEY = "gpu/job/1/video_1.mp4"


def settings(**values: Any) -> FileSettings:
    return FileSettings(_env_file=None, **values)


@pytest.fixture
def files(tmp_path: Path) -> FileStore:
    return create_file_store(settings(home=tmp_path, public_url="https://here.example/"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "made.mp4"
    path.write_bytes(b"film" * 100_000)
    return path


async def test_a_local_file_has_a_server_url_and_is_read_back(files: FileStore, source: Path) -> None:
    assert await files.put(source, KEY) == f"https://here.example/files/{KEY}"
    opened = await files.open_key(KEY)
    assert opened is not None
    assert (opened.size, opened.media_type) == (400_000, "video/mp4")
    assert b"".join([chunk async for chunk in opened.chunks]) == b"film" * 100_000


async def test_the_same_key_is_overwritten_so_a_second_render_creates_no_second_file(
    files: FileStore, source: Path, tmp_path: Path
) -> None:
    await files.put(source, KEY)
    await files.put(source, KEY)
    assert [path.name for path in (tmp_path / "files/gpu/job/1").iterdir()] == ["video_1.mp4"]


@pytest.mark.parametrize(
    "key",
    ["../made.mp4", "gpu/../../made.mp4", "/etc/passwd", "gpu//x", "gpu/..", "", "gpu/%2e%2e/x", "a\0", "gpu/x\n"],
)
async def test_a_key_that_escapes_the_folder_cannot_be_read_or_written(
    files: FileStore, source: Path, key: str
) -> None:
    assert await files.open_key(key) is None
    with pytest.raises(ValueError, match="not a valid key of a file"):
        await files.put(source, key)


async def test_a_byte_range_of_a_file_excludes_its_end(files: FileStore, source: Path) -> None:
    await files.put(source, KEY)
    opened = await files.open_key(KEY, (1, 6))
    assert opened is not None
    assert (opened.size, [chunk async for chunk in opened.chunks]) == (5, [b"ilmfi"])
    assert await files.get_size(KEY) == 400_000
    assert await files.get_size("gpu/job/1/video_2.mp4") is None


async def test_a_missing_file_is_none(files: FileStore) -> None:
    assert await files.open_key("gpu/job/1/video_2.mp4") is None
    assert await files.open_key("gpu/job") is None


async def test_a_bucket_stores_the_file_and_returns_a_link_signed_for_seven_days(
    switch: Switch, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIACANARY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secretCANARY")
    taken: list[tuple[str, str, int]] = []

    async def bucket(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (part := await receive()).get("more_body"):
            body += part["body"]
        taken.append((scope["method"], scope["path"], len(body + part["body"])))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"etag", b'"1"')]})
        await send({"type": "http.response.body", "body": b""})

    switch.app = bucket
    files = create_file_store(settings(files_url=f"s3://clips/made?endpoint={switch.origin}"))
    url = await files.put(source, KEY)
    assert taken == [("PUT", f"/clips/made/{KEY}", 400_000)]
    assert url.startswith(f"{switch.origin}/clips/made/{KEY}?")
    assert "X-Amz-Expires=604800" in url
    assert "secretCANARY" not in url


async def test_a_public_bucket_returns_plain_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    options = settings(files_url="s3://clips?region=sa-east-1", files_public_url="https://cdn.example")
    assert await create_file_store(options).get_url(KEY) == f"https://cdn.example/{KEY}"


@pytest.mark.parametrize("url", ["gs://bucket", "s3://", "/srv/files"])
def test_an_unsupported_url_scheme_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="RETOMA_FILES_URL"):
        create_file_store(settings(files_url=url))
