from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from fastapi import APIRouter
from starlette.requests import Request

from retoma import App
from retoma.server import Principal, request_limits, require_scope
from tests.server.api import Api, film
from tests.server.conftest import OpenApi

MOST = 5_000


class Seen:
    def __init__(self) -> None:
        self.parts: list[int] = []


def make_app(seen: Seen) -> App:
    """An application that takes large bodies at one path, part by part."""
    router = APIRouter()

    @router.post("/large")
    async def large(request: Request, by: Annotated[Principal, require_scope("runs:write")]) -> dict[str, int]:
        async for part in request.stream():
            seen.parts.append(len(part))
        return {"bytes": sum(seen.parts)}

    return App("large", pipelines=[film], routes=[router], large_bodies={"/large": MOST})


async def parts(count: int, size: int = 1_000) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * size


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "MAX_BODY_BYTES", 2_000)


async def test_a_large_body_reaches_its_route_part_by_part(open_api: OpenApi) -> None:
    seen = Seen()
    async with open_api(application=make_app(seen)) as api:
        answer = await api.post("/large", content=parts(5))
        assert (answer.status_code, answer.json()) == (200, {"bytes": MOST})
        assert [size for size in seen.parts if size] == [1_000] * 5


async def test_a_body_above_the_limit_of_its_path_is_refused_while_it_comes(open_api: OpenApi) -> None:
    seen = Seen()
    async with open_api(application=make_app(seen)) as api:
        answer = await api.post("/large", content=parts(50))
        assert (answer.status_code, answer.json()["code"]) == (413, "BODY_TOO_LARGE")
        assert "larger than 5,000 bytes" in answer.json()["detail"]
        assert sum(seen.parts) <= MOST


async def test_a_body_that_declares_too_large_a_size_is_rejected_before_it_arrives(open_api: OpenApi) -> None:
    seen = Seen()
    async with open_api(application=make_app(seen)) as api:
        answer = await api.post("/large", content=b"x" * (MOST + 1))
        assert (answer.status_code, answer.json()["code"], seen.parts) == (413, "BODY_TOO_LARGE", [])


async def test_other_paths_keep_the_usual_limit(open_api: OpenApi) -> None:
    async with open_api(application=make_app(Seen())) as api:
        for path in ("/large/", "/api/v1/runs"):
            answer = await api.post(path, content=parts(3))
            assert (answer.status_code, answer.json()["code"]) == (413, "BODY_TOO_LARGE")


async def test_a_client_without_a_key_is_rejected_before_the_body_is_read(open_api: OpenApi) -> None:
    seen = Seen()
    async with open_api(application=make_app(seen)) as api:
        answer = await api.post("/large", content=parts(3), key=None)
        assert (answer.status_code, answer.json()["code"], seen.parts) == (401, "API_KEY_REQUIRED", [])


async def test_a_route_has_unlimited_time_once_its_body_has_arrived() -> None:
    coming = [{"type": "http.request", "body": b"b"}, {"type": "http.request", "body": b"a", "more_body": True}]

    async def receive(*_: Any) -> Any:
        return coming.pop()

    async with asyncio.timeout(60) as deadline:
        first = deadline.when()
        answer = request_limits._ResponseSender(receive)
        answer.deadline = deadline
        counted = request_limits._LimitedReceive(receive, MOST, answer)
        await counted()
        assert deadline.when() not in (None, first)
        await counted()
        assert deadline.when() is None
        assert answer.request_complete


async def test_a_client_that_disconnects_mid_body_is_not_a_server_error(
    open_api: OpenApi, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    async with open_api(application=make_app(seen)) as api:
        await send_a_part_and_go(api, "/large")
        assert seen.parts == [3]
        assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def send_a_part_and_go(api: Api, path: str) -> None:
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"x-api-key", (api.key or "").encode()), (b"host", b"api.example")],
        "client": ("203.0.113.9", 1),
        "server": ("api.example", 80),
        "scheme": "http",
        "http_version": "1.1",
        "root_path": "",
    }
    parts = [{"type": "http.request", "body": b"abc", "more_body": True}]

    async def receive() -> Any:
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    await api.server(scope, receive, send)


@pytest.mark.parametrize("path", ["/large", "/api/v1/runs"])
async def test_a_stalled_body_is_408_and_not_a_database_fault(
    open_api: OpenApi, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async def stalled() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    monkeypatch.setattr(request_limits, "RESPONSE_TIMEOUT_SECONDS", 0.5)
    async with open_api(application=make_app(Seen())) as api:
        answer = await api.post(path, content=stalled())
        assert (answer.status_code, answer.json()["code"]) == (408, "REQUEST_TIMEOUT")
