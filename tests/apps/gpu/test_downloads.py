"""`/files/...`: outputs stored on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.apps.gpu.conftest import OpenGpuApp
from tests.apps.gpu.gpu_app import GpuApp

FILM = bytes(range(100))
KEY = "gpu/0190/1/video_1.mp4"


@pytest.fixture
async def app_with_film(open_gpu_app: OpenGpuApp, tmp_path: Path) -> AsyncIterator[GpuApp]:
    """An application with one stored film, and a secret next to its files."""
    film = tmp_path / "files" / KEY
    film.parent.mkdir(parents=True)
    film.write_bytes(FILM)
    (tmp_path / "secret.mp4").write_text("a secret")
    async with open_gpu_app() as gpu_app:
        yield gpu_app


async def test_a_video_is_served_to_anyone_who_knows_its_url(app_with_film: GpuApp) -> None:
    answer = await app_with_film.api.get(f"/files/{KEY}", key=None)
    assert (answer.status_code, answer.content) == (200, FILM)
    assert answer.headers["content-type"] == "video/mp4"
    assert answer.headers["content-length"] == "100"
    assert answer.headers["content-disposition"] == 'attachment; filename="video_1.mp4"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["accept-ranges"] == "bytes"


async def test_a_head_request_returns_the_same_headers_without_a_body(app_with_film: GpuApp) -> None:
    fetched = await app_with_film.api.get(f"/files/{KEY}", key=None)
    looked = await app_with_film.api.call("HEAD", f"/files/{KEY}", key=None, headers={"Range": "bytes=0-9"})
    assert (looked.status_code, looked.content, looked.headers) == (200, b"", fetched.headers)
    assert (await app_with_film.api.call("HEAD", "/files/gpu/0190/1/video_2.mp4", key=None)).status_code == 404


@pytest.mark.parametrize(
    ("requested", "got", "reported"),
    [
        ("bytes=0-9", FILM[:10], "bytes 0-9/100"),
        ("bytes=90-", FILM[90:], "bytes 90-99/100"),
        ("bytes=-5", FILM[95:], "bytes 95-99/100"),
        ("bytes=50-5000", FILM[50:], "bytes 50-99/100"),
        ("bytes=-5000", FILM, "bytes 0-99/100"),
    ],
)
async def test_a_range_request_returns_that_part(
    requested: str, got: bytes, reported: str, app_with_film: GpuApp
) -> None:
    answer = await app_with_film.api.get(f"/files/{KEY}", key=None, headers={"Range": requested})
    assert (answer.status_code, answer.content, answer.headers["content-range"]) == (206, got, reported)
    assert answer.headers["content-length"] == str(len(got))


@pytest.mark.parametrize("requested", ["bytes=100-", "bytes=9-3", "bytes=-0"])
async def test_an_unsatisfiable_range_is_rejected(requested: str, app_with_film: GpuApp) -> None:
    answer = await app_with_film.api.get(f"/files/{KEY}", key=None, headers={"Range": requested})
    assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */100")


@pytest.mark.parametrize("requested", ["bytes=-", "bytes=0-1,5-6", "seconds=1-2", "bytes=a-b"])
async def test_an_invalid_range_gets_the_whole_file(requested: str, app_with_film: GpuApp) -> None:
    answer = await app_with_film.api.get(f"/files/{KEY}", key=None, headers={"Range": requested})
    assert (answer.status_code, answer.content) == (200, FILM)


@pytest.mark.parametrize(
    "key",
    [
        "gpu/0190/1/video_2.mp4",
        "gpu/0190/1",
        "gpu",
        "",
        "../secret.mp4",
        "..%2fsecret.mp4",
        "gpu/..%2f..%2fsecret.mp4",
        "%2e%2e/secret.mp4",
        "gpu/0190/1/video_1.mp4%00",
        "%2fetc%2fpasswd",
        "gpu\\0190",
    ],
)
async def test_no_other_file_can_be_fetched(key: str, app_with_film: GpuApp) -> None:
    answer = await app_with_film.api.get(f"/files/{key}", key=None)
    assert answer.status_code == 404
    assert b"secret" not in answer.content.replace(b"secret.mp4", b"")
