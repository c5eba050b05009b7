"""Development needs no key on this machine with the token of this start, and only there."""

from __future__ import annotations

from typing import Annotated, Any

import httpx2
import pytest
from fastapi import APIRouter
from starlette.types import Receive, Scope, Send

from retoma import App
from retoma.errors import DefinitionError
from retoma.server import Principal, Problem, public, require_scope
from tests.server.api import DEVELOPMENT_TOKEN, ELSEWHERE, film
from tests.server.conftest import OpenApi

PROXY_HEADERS = [
    "X-Real-IP",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Server",
    "Via",
    "X-Client-IP",
    "CF-Connecting-IP",
    "CF-Ray",
    "True-Client-IP",
    "Fly-Client-IP",
    "X-Original-Forwarded-For",
    "X-Cluster-Client-IP",
    "X-Envoy-External-Address",
    "Client-IP",
]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1"])
@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "[::1]:8765", "localhost"])
async def test_a_program_on_this_machine_needs_only_the_token(open_api: OpenApi, address: str, host: str) -> None:
    async with open_api(scopes=None, development=True, address=address, host=host) as api:
        assert (await api.get("/api/v1/runs")).status_code == 200
        assert await api.start()
        bearer = {"Authorization": f"Bearer {DEVELOPMENT_TOKEN}"}
        assert (await api.get("/api/v1/runs", key=None, headers=bearer)).status_code == 200


async def test_without_the_token_of_this_start_nobody_is_admitted(open_api: OpenApi) -> None:
    async with open_api(scopes=None, development=True, address="127.0.0.1", host="127.0.0.1:8765") as api:
        for headers in ({}, {"Cookie": "retoma-dev-8765=guessed"}, {"Cookie": f"retoma-dev-80={DEVELOPMENT_TOKEN}"}):
            answer = await api.get("/api/v1/runs", key=None, headers=headers)
            assert answer.status_code == 401
            assert "dev-key" in answer.json()["detail"]
        answer = await api.post("/api/v1/runs", key=None, json={"pipeline": "film"})
        assert answer.status_code == 401
        assert await api.client.runs.list() == []


@pytest.mark.parametrize(
    ("address", "host"),
    [
        (ELSEWHERE, "127.0.0.1:8765"),
        ("10.0.0.3", "localhost:8765"),
        ("127.0.0.1", "rebound.example:8765"),
        ("127.0.0.1", "127.0.0.1.rebound.example"),
        ("127.0.0.1", "0.0.0.0:8765"),
        ("127.0.0.1", "localhost.rebound.example"),
    ],
)
async def test_any_other_caller_needs_a_key_in_development_too(open_api: OpenApi, address: str, host: str) -> None:
    async with open_api(development=True, address=address, host=host) as api:
        assert (await api.get("/api/v1/runs", key=None)).status_code == 401
        assert (await api.get("/api/v1/runs")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[::"},
        {"Origin": "http://localhost.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1"},
        *({name: "127.0.0.1"} for name in PROXY_HEADERS),
    ],
)
async def test_a_page_in_a_browser_or_a_proxy_gets_nothing_without_a_key(
    open_api: OpenApi, headers: dict[str, str]
) -> None:
    """Not even with the token."""
    async with open_api(scopes=None, development=True, address="127.0.0.1", host="127.0.0.1:8765") as api:
        for path in ("/api/v1/runs", "/api/v1/openapi.json"):
            assert (await api.get(path, headers=headers)).status_code == 401
        answer = await api.post("/api/v1/runs", json={"pipeline": "film"}, headers=headers)
        assert answer.status_code == 401


async def test_a_proxied_request_gets_the_advice_to_use_serve(open_api: OpenApi) -> None:
    async with open_api(scopes=None, development=True, address="127.0.0.1", host="127.0.0.1:8765") as api:
        for key in (None, DEVELOPMENT_TOKEN):
            answer = await api.get("/api/v1/runs", key=key, headers={"Via": "1.1 proxy"})
            assert answer.status_code == 401
            assert "came through a proxy" in answer.json()["detail"]
            assert "retoma serve" in answer.json()["detail"]


async def test_a_request_over_http_1_0_counts_as_proxied(open_api: OpenApi) -> None:
    async with open_api(scopes=None, development=True, address="127.0.0.1", host="127.0.0.1:8765") as api:

        async def serve_as_http_1_0(scope: Scope, receive: Receive, send: Send) -> None:
            await api.server({**scope, "http_version": "1.0"}, receive, send)

        transport = httpx2.ASGITransport(app=serve_as_http_1_0, client=("127.0.0.1", 50_000))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as http:
            answer = await http.get("/api/v1/runs", headers={"X-API-Key": DEVELOPMENT_TOKEN})
    assert answer.status_code == 401
    assert "came through a proxy" in answer.json()["detail"]


async def test_our_own_page_may_call(open_api: OpenApi) -> None:
    headers = {"Origin": "http://127.0.0.1:8765", "Sec-Fetch-Site": "same-origin"}
    async with open_api(scopes=None, development=True, address="127.0.0.1", host="127.0.0.1:8765") as api:
        assert (await api.get("/api/v1/runs", headers=headers)).status_code == 200


async def test_a_wrong_key_is_refused_in_development_too(open_api: OpenApi) -> None:
    async with open_api(scopes=None, development=True, address="127.0.0.1", host="127.0.0.1:8765") as api:
        assert (await api.get("/api/v1/runs", key="rtm_wrong")).status_code == 401


async def test_outside_development_this_machine_needs_a_key(open_api: OpenApi) -> None:
    async with open_api(address="127.0.0.1", host="127.0.0.1:8765") as api:
        assert (await api.get("/api/v1/runs", key=None)).status_code == 401
        assert (await api.get("/api/v1/openapi.json", key=None)).status_code == 401


async def test_a_form_of_a_foreign_page_starts_nothing(open_api: OpenApi) -> None:
    """A form can be sent to this machine from any page, in types that need no leave."""
    async with open_api(scopes=None, development=True, address="127.0.0.1", host="127.0.0.1:8765") as api:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            answer = await api.post("/api/v1/runs", content=b'{"pipeline": "film"}', headers={"Content-Type": kind})
            assert answer.status_code == 422
        assert await api.client.runs.list() == []


def make_app(router: APIRouter) -> App:
    return App("films", pipelines=[film], routes=[router])


async def test_an_application_adds_routes_that_require_authentication(open_api: OpenApi) -> None:
    router = APIRouter()

    @router.get("/jobs")
    async def jobs(by: Annotated[Principal, require_scope("runs:read")]) -> dict[str, Any]:
        return {"tenants": by.client.allowed_tenants, "name": by.name}

    @router.get("/broken")
    async def broken(by: Annotated[Principal, require_scope("runs:read")]) -> None:
        raise Problem(409, "QUEUED", "it is queued", error="QUEUED")

    async with open_api(application=make_app(router)) as api:
        key = await api.make_key("runs:read", tenant="blog", name="n8n")
        assert (await api.get("/jobs", key=None)).status_code == 401
        assert (await api.get("/jobs", key=key)).json() == {"tenants": ["blog"], "name": "n8n"}
        broken_answer = await api.get("/broken")
        assert broken_answer.headers["content-type"] == "application/problem+json"
        assert (broken_answer.json()["error"], broken_answer.json()["code"]) == ("QUEUED", "QUEUED")


async def test_a_route_without_declared_permissions_is_not_served(open_api: OpenApi) -> None:
    router = APIRouter()

    @router.get("/open")
    async def open_to_all() -> None: ...

    with pytest.raises(DefinitionError, match="GET /open does not declare who may call it"):
        async with open_api(application=make_app(router)):
            pass
    outer_router = APIRouter()
    outer_router.include_router(router, dependencies=[public])
    async with open_api(application=make_app(outer_router)) as api:
        assert (await api.get("/open", key=None)).status_code == 200
