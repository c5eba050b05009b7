"""Items of a run by state and by text, and the files that its data names, for those who may see the run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from retoma import App, Pipeline, Retry
from retoma.define.file import File
from retoma.files import FileSettings, create_file_store
from tests.server.api import Api
from tests.server.conftest import OpenApi

PAGE = b"<script>alert(document.domain)</script>"
NAME = '../évil\r\n"<b>.html'


class Papers(BaseModel):
    papers: list[File]


reading = Pipeline("reading", inputs=Papers, retry=Retry(0))


@reading.step
def listed(papers: list[File]) -> list[File]:
    return papers


@reading.each(listed, key="name")
def length(paper: File) -> int:
    if paper.size == 0:
        raise ValueError("there is nothing in it")
    return paper.size


@asynccontextmanager
async def open_finished_run(
    open_api: OpenApi, tmp_path: Path, *named: tuple[str, bytes]
) -> AsyncIterator[tuple[Api, str, list[File]]]:
    """A server with a run of the tenant `blog` that is over, and its files."""
    files = create_file_store(FileSettings(home=tmp_path, files_url=None))
    async with open_api(application=App("readers", pipelines=[reading], files=files)) as api:
        saved = [await files.save(content, name=name) for name, content in named]
        run = await api.client.start("reading", Papers(papers=saved), tenant="blog")
        await api.sandbox.work()
        yield api, f"/api/v1/runs/{run.id}", saved


async def fetch_file(api: Api, path: str, file: File, **options: Any) -> httpx2.Response:
    return await api.get(f"{path}/files/{file.file}", **options)


async def test_a_file_is_served_as_an_attachment_that_cannot_execute(open_api: OpenApi, tmp_path: Path) -> None:
    async with open_finished_run(open_api, tmp_path, (NAME, PAGE)) as (api, run, (file,)):
        answer = await fetch_file(api, run, file)
        assert (answer.status_code, answer.content) == (200, PAGE)
        assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''.._%C3%A9vil__%22%3Cb%3E.html"
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-length"] == str(len(PAGE))


async def test_only_a_file_named_by_the_run_is_served_and_only_to_its_tenant(open_api: OpenApi, tmp_path: Path) -> None:
    async with open_finished_run(open_api, tmp_path, ("a.txt", b"a")) as (api, run, (file,)):
        assert api.client.app is not None
        assert api.client.app.files is not None
        other = await api.client.app.files.save(b"of somebody else", name="b.txt")
        assert (await fetch_file(api, run, other)).status_code == 404
        assert (await fetch_file(api, run, file, key=await api.make_key("runs:read", tenant="shop"))).status_code == 404
        assert (await fetch_file(api, run, file, key=await api.make_key("runs:read", tenant="blog"))).status_code == 200
        assert (await api.get(f"{run}/files/..%2F..%2Fsecret")).status_code in (404, 422)


async def test_a_file_whose_content_is_gone_is_not_found(open_api: OpenApi, tmp_path: Path) -> None:
    missing = File(file=sha256(b"gone").hexdigest(), name="gone.txt", size=4)
    async with open_finished_run(open_api, tmp_path) as (api, _, _):
        run = await api.client.start("reading", Papers(papers=[missing]))
        answer = await fetch_file(api, f"/api/v1/runs/{run.id}", missing)
        assert (answer.status_code, "is not in the file store" in answer.json()["detail"]) == (404, True)


async def test_a_media_type_that_could_end_a_header_is_not_trusted(open_api: OpenApi, tmp_path: Path) -> None:
    async with open_finished_run(open_api, tmp_path, ("a.txt", b"a")) as (api, _, (file,)):
        odd = file.model_copy(update={"media_type": "text/html\r\nX-Evil: 1"})
        run = await api.client.start("reading", Papers(papers=[odd]))
        answer = await fetch_file(api, f"/api/v1/runs/{run.id}", odd)
        assert answer.headers["content-type"] == "application/octet-stream"


async def test_items_are_paged_and_filtered_by_state_and_by_text(open_api: OpenApi, tmp_path: Path) -> None:
    named = [(f"Paper {number}.txt", b"x" * (number % 3)) for number in range(6)]
    async with open_finished_run(open_api, tmp_path, *named) as (api, run, _):
        first = (await api.get(f"{run}/items?limit=4")).json()
        assert [item["item"] for item in first["items"]] == [name for name, _ in named[:4]]
        rest = (await api.get(f"{run}/items?limit=4&after={first['next']}")).json()
        assert ([item["item"] for item in rest["items"]], rest["next"]) == ([name for name, _ in named[4:]], None)
        failed = (await api.get(f"{run}/items?state=failed&source=listed")).json()["items"]
        assert [(item["item"], item["attempt"]) for item in failed] == [("Paper 0.txt", 1), ("Paper 3.txt", 1)]
        assert failed[0]["error"]["message"] == "there is nothing in it"
        assert len((await api.get(f"{run}/items?search=pAPER 5")).json()["items"]) == 1


@pytest.mark.parametrize("query", ["source=length", "source=nothing"])
async def test_items_of_a_step_without_items_are_not_found(open_api: OpenApi, tmp_path: Path, query: str) -> None:
    async with open_finished_run(open_api, tmp_path, ("a.txt", b"a")) as (api, run, _):
        answer = await api.get(f"{run}/items?{query}")
        assert (answer.status_code, "listed" in answer.json()["detail"]) == (404, True)
