"""Byte ranges of a file, as media players request them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retoma import App
from retoma.define.file import File
from retoma.files import FileSettings, create_file_store
from tests.server.api import Api
from tests.server.conftest import OpenApi
from tests.server.test_items_and_files import Papers, reading

CONTENT = bytes(range(100))


@pytest.fixture
async def file(open_api: OpenApi, tmp_path: Path) -> AsyncIterator[tuple[Api, str]]:
    """A server, and where it has a file of a hundred bytes."""
    files = create_file_store(FileSettings(home=tmp_path, files_url=None))
    async with open_api(application=App("readers", pipelines=[reading], files=files)) as api:
        saved: File = await files.save(CONTENT, name="tone.wav")
        run = await api.client.start("reading", Papers(papers=[saved]))
        yield api, f"/api/v1/runs/{run.id}/files/{saved.file}"


@pytest.mark.parametrize(
    ("requested", "first", "last"),
    [
        ("bytes=0-9", 0, 9),
        ("bytes=90-", 90, 99),
        ("bytes=95-400", 95, 99),
        ("bytes=-10", 90, 99),
        ("bytes=-400", 0, 99),
    ],
)
async def test_the_requested_byte_range_is_sent(file: tuple[Api, str], requested: str, first: int, last: int) -> None:
    api, address = file
    answer = await api.get(address, headers={"Range": requested})
    assert (answer.status_code, answer.content) == (206, CONTENT[first : last + 1])
    assert answer.headers["content-range"] == f"bytes {first}-{last}/100"
    assert answer.headers["content-length"] == str(last - first + 1)


@pytest.mark.parametrize("requested", [None, "bytes=-", "bytes=0-1,5-6", "lines=1-2", "bytes=a-b"])
async def test_an_invalid_or_multiple_range_gets_the_whole_file(file: tuple[Api, str], requested: str | None) -> None:
    api, address = file
    answer = await api.get(address, headers={"Range": requested} if requested else {})
    assert (answer.status_code, answer.content) == (200, CONTENT)
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["content-type"] == "audio/x-wav"
    assert "sandbox" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("requested", ["bytes=100-", "bytes=50-40", "bytes=-0"])
async def test_an_unsatisfiable_range_is_rejected_with_the_size(file: tuple[Api, str], requested: str) -> None:
    api, address = file
    answer = await api.get(address, headers={"Range": requested})
    assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */100")
