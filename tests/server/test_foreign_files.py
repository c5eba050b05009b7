"""A key for one tenant names only files of that tenant, even if it knows the digest of another one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from retoma import App, Context, Pipeline, Retry
from retoma.define.file import File
from retoma.files import FileSettings, FileStore, create_file_store
from tests.server.api import RUNS, Api
from tests.server.conftest import OpenApi


class Letters(BaseModel):
    letters: list[File] = []
    subject: str = ""


post = Pipeline("post", inputs=Letters, retry=Retry(0))


@post.step
async def copies(letters: list[File], *, ctx: Context) -> list[File]:
    return [*letters, await ctx.save_file(b"a copy for the files", "copy.txt")]


@post.step
def envelope(copies: list[File]) -> list[File]:
    return copies


post.review("opened", of=envelope)


@pytest.fixture
def files(tmp_path: Path) -> FileStore:
    return create_file_store(FileSettings(home=tmp_path, files_url=None))


@pytest.fixture
async def api(open_api: OpenApi, files: FileStore) -> AsyncIterator[Api]:
    async with open_api(application=App("mail", pipelines=[post], files=files)) as opened:
        yield opened


async def start(api: Api, key: str, *letters: File) -> httpx2.Response:
    body = {"pipeline": "post", "input": {"letters": [each.model_dump() for each in letters]}}
    return await api.post("/api/v1/runs", json=body, key=key)


async def make_tenant_key(api: Api, tenant: str) -> str:
    return await api.make_key(*RUNS, "reviews:write", tenant=tenant)


async def work_on(api: Api, answer: httpx2.Response) -> str:
    assert answer.status_code == 202, answer.text
    await api.sandbox.work()
    return f"/api/v1/runs/{answer.json()['id']}"


async def test_a_run_cannot_name_a_file_of_another_tenant(api: Api) -> None:
    secret = await api.client.files.save(b"secret", tenant="blog", name="secret.txt")
    refused = await start(api, await make_tenant_key(api, "shop"), secret)
    assert (refused.status_code, refused.json()["code"]) == (422, "INVALID_INPUT")
    assert (await api.get("/api/v1/runs")).json()["runs"] == []
    assert (await start(api, await make_tenant_key(api, "blog"), secret)).status_code == 202


async def test_a_refusal_does_not_say_whether_the_file_exists(api: Api) -> None:
    secret = await api.client.files.save(b"secret", tenant="blog")
    unknown = secret.model_copy(update={"file": "0" * 64})
    key = await make_tenant_key(api, "shop")
    refusals = [(await start(api, key, each)).json()["detail"] for each in (secret, unknown)]
    assert refusals[0] == refusals[1].replace(unknown.file, secret.file)


async def test_a_batch_with_one_foreign_file_starts_nothing(api: Api) -> None:
    secret = await api.client.files.save(b"secret", tenant="blog")
    body = {"pipeline": "post", "inputs": [{}, {"letters": [secret.model_dump()]}]}
    refused = await api.post("/api/v1/runs/bulk", json=body, key=await make_tenant_key(api, "shop"))
    assert refused.status_code == 422
    assert (await api.get("/api/v1/runs")).json()["runs"] == []


async def test_the_result_of_a_step_can_be_the_input_of_another_run(api: Api) -> None:
    key = await make_tenant_key(api, "shop")
    run = await work_on(api, await start(api, key))
    (copy,) = (await api.get(f"{run}/results", key=key)).json()["copies"]
    assert (await start(api, key, File(**copy))).status_code == 202
    assert (await start(api, await make_tenant_key(api, "blog"), File(**copy))).status_code == 422


async def test_an_operator_may_pass_a_file_on_to_a_tenant(api: Api, files: FileStore) -> None:
    flyer = await files.save(b"flyer")
    body = {"pipeline": "post", "tenant": "shop", "input": {"letters": [flyer.model_dump()]}}
    assert (await api.post("/api/v1/runs", json=body)).status_code == 202
    assert (await start(api, await make_tenant_key(api, "shop"), flyer)).status_code == 202


@pytest.mark.parametrize("action", ["edit", "fork", "decide"])
async def test_no_action_on_an_own_run_brings_in_a_foreign_file(api: Api, action: str) -> None:
    secret = await api.client.files.save(b"secret", tenant="blog")
    key = await make_tenant_key(api, "shop")
    run = await work_on(api, await start(api, key))
    (own,) = (await api.get(f"{run}/results", key=key)).json()["copies"]
    refused, accepted = [await act(api, action, run, key, file) for file in (secret.model_dump(), own)]
    assert refused.status_code == 422, refused.text
    assert accepted.is_success, accepted.text
    assert (await api.get(f"{run}/files/{secret.file}", key=key)).status_code == 404


async def act(api: Api, action: str, run: str, key: str, file: Any) -> httpx2.Response:
    """Put this file into the data of the run, or of a fork of it."""
    if action == "edit":
        return await api.post(f"{run}/edit", json={"step": "copies", "value": [file]}, key=key)
    (review,) = (await api.get("/api/v1/reviews", key=key)).json()["reviews"] or [None]
    decision = {"action": "approve", "value": [file]}
    if action == "decide":
        return await api.post(f"/api/v1/reviews/{review['id']}/decision", json=decision, key=key)
    await api.post(f"{run}/cancel", key=key)
    await api.sandbox.work()
    return await api.post(f"{run}/fork", json={"input": {"letters": [file]}}, key=key)
