"""The memory of a request is freed once it is answered, without garbage collection."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import pytest
from fastapi import APIRouter
from starlette.requests import Request

from retoma import App, GiveUp, Pipeline
from retoma.server import Principal, require_scope
from tests.server.api import film
from tests.server.conftest import OpenApi
from tests.server.pages.visitor import visit_pages

TIMES = 20
LARGE = 900_000  # bytes of each body
ALL = TIMES * LARGE
JSON = {"Content-Type": "application/json"}
SPACES = b" " * LARGE


@contextmanager
def check_memory_retained() -> Iterator[None]:
    """Fail if the code inside retains a quarter of all bodies in memory."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[0] < ALL / 4
    finally:
        tracemalloc.stop()
        gc.enable()


def application() -> App:
    """Films, with a route that fails once it has read its body."""
    router = APIRouter()

    @router.post("/failing")
    async def failing(request: Request, by: Annotated[Principal, require_scope("runs:write")]) -> None:
        body = await request.body()
        try:
            raise ValueError("a bug")
        except ValueError as error:
            wrong = GiveUp(f"{len(body)} bytes")
            raise wrong from error

    essay = Pipeline("essay")

    @essay.step
    def text() -> str:
        return "x" * LARGE

    return App("films", pipelines=[film, essay], routes=[router])


REFUSED: dict[str, tuple[int, str, bytes]] = {
    "not JSON": (422, "/api/v1/runs", b'{"pipeline": ' + SPACES),
    "wrong field": (422, "/api/v1/runs", b'{"pipeline": "film", "priority": "high"' + SPACES + b"}"),
    "wrong input": (422, "/api/v1/runs", b'{"pipeline": "film", "input": {"scenes": "many"}' + SPACES + b"}"),
    "unknown pipeline": (404, "/api/v1/runs", b'{"pipeline": "nothing"' + SPACES + b"}"),
    "too deep": (400, "/api/v1/runs", SPACES + b"[" * 100),
    "not UTF-8": (400, "/api/v1/runs", b'"\xff' + SPACES + b'"'),
    "unknown path": (404, "/nowhere", SPACES),
    "failing route": (500, "/failing", SPACES),
}


@pytest.mark.parametrize("way", REFUSED)
async def test_rejected_requests_of_authenticated_clients_retain_no_memory(open_api: OpenApi, way: str) -> None:
    status, path, body = REFUSED[way]
    async with open_api(application=application()) as api:
        with check_memory_retained():
            for _ in range(TIMES):
                assert (await api.post(path, content=bytes(bytearray(body)), headers=JSON)).status_code == status
                await asyncio.sleep(0)  # for the client to close what was not read


async def test_rejected_forms_retain_no_memory(open_api: OpenApi) -> None:
    async with visit_pages(open_api)() as visitor:
        with check_memory_retained():
            for _ in range(TIMES):
                answer = await visitor.post("/runs/1/cancel", {"csrf": "wrong", "text": "x" * LARGE})
                assert answer.status_code == 403


async def test_large_responses_retain_no_memory(open_api: OpenApi) -> None:
    async with open_api(application=application()) as api:
        run = (await api.post("/api/v1/runs", json={"pipeline": "essay"})).json()["id"]
        await api.sandbox.work()
        with check_memory_retained():
            for _ in range(TIMES):
                assert len((await api.get(f"/api/v1/runs/{run}/results")).content) > LARGE
