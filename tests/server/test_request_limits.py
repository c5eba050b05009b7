"""Whatever arrives and whatever goes wrong, the answer is a problem document that says what to do, and no more."""

from __future__ import annotations

import asyncio
import http.cookies
import json
import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import uuid4

import pytest
from fastapi import APIRouter

from retoma import App
from retoma.errors import DatabaseUnavailable
from retoma.server import Principal, json_limits, request_limits, require_scope
from retoma.server.json_limits import JsonLimits, check_json_limits, check_surrogates
from retoma.server.problems import Problem
from retoma.server.routes import health
from tests.server.api import Api, film
from tests.server.conftest import OpenApi


def check_problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code)
    assert {"type", "title", "status", "detail", "code"} <= body.keys()
    assert answer.headers["x-content-type-options"] == "nosniff"
    return body


async def test_every_error_is_a_problem(api: Api) -> None:
    check_problem(await api.get("/nowhere"), 404, "NOT_FOUND")
    check_problem(await api.call("DELETE", "/api/v1/runs"), 405, "METHOD_NOT_ALLOWED")
    check_problem(await api.get("/api/v1/runs/", key=None), 404, "NOT_FOUND")
    check_problem(await api.get("/api/v1/runs", key=None), 401, "API_KEY_REQUIRED")
    check_problem(await api.post("/api/v1/runs", content=b"{", headers=JSON), 422, "INVALID_REQUEST")
    check_problem(await api.post("/api/v1/runs", content=b'"\xff"', headers=JSON), 400, "BAD_REQUEST")
    check_problem(await api.get("/api/v1/runs/not-a-run"), 404, "NOT_FOUND")
    other_method = await api.call("PATCH", "/api/v1/pools/gpu")
    assert (other_method.status_code, other_method.headers["allow"]) == (405, "GET, PUT")


JSON = {"Content-Type": "application/json"}


async def test_wrong_fields_are_listed(api: Api) -> None:
    answer = await api.post("/api/v1/runs", json={"pipeline": "film", "priority": "high", "colour": "red"})
    body = check_problem(answer, 422, "INVALID_REQUEST")
    assert sorted(each["field"] for each in body["errors"]) == ["colour", "priority"]
    answer = await api.post("/api/v1/runs", json={"pipeline": "film", "input": {"scenes": "many"}})
    body = check_problem(answer, 422, "INVALID_INPUT")
    assert [each["field"] for each in body["errors"]] == ["scenes"]


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "application/x-www-form-urlencoded"}])
async def test_a_body_without_the_json_content_type_gets_advice(api: Api, headers: dict[str, str]) -> None:
    answer = await api.post("/api/v1/runs", content=b'{"pipeline": "film"}', headers=headers)
    body = check_problem(answer, 422, "INVALID_REQUEST")
    assert body["detail"].endswith("send Content-Type: application/json")
    answer = await api.post("/api/v1/runs", content=b'"film"', headers=JSON)
    assert "Content-Type" not in check_problem(answer, 422, "INVALID_REQUEST")["detail"]


async def test_a_body_that_is_too_large_is_refused_while_it_comes(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "MAX_BODY_BYTES", 1_000)
    sent = 0

    async def parts() -> Any:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b" " * 400

    check_problem(await api.post("/api/v1/runs", content=b" " * 1_001, headers=JSON), 413, "BODY_TOO_LARGE")
    check_problem(await api.post("/api/v1/runs", content=parts(), headers=JSON), 413, "BODY_TOO_LARGE")
    assert sent <= 4


@pytest.mark.parametrize("text", ["[" * 65, "[" * 65 + "]" * 65, '{"a":' * 65, '{"\\"[":' * 65, "[" * 100_000])
def test_json_that_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(Problem, match="64 levels"):
        check_json_limits(text.encode())


@pytest.mark.parametrize(
    "text", ["[" * 64, "[[]," * 100, '"' + "[" * 100 + '"', json.dumps(['[[[\\"[['] * 100), '\\"' * 100_000 + "[" * 60]
)
def test_brackets_in_strings_and_side_by_side_are_not_depth(text: str) -> None:
    check_json_limits(text.replace("[[],", "[],").encode())


def refuse_in_parts(body: bytes, size: int) -> str | None:
    """The code with which this body is refused when it arrives in parts of this size."""
    shape = JsonLimits()
    try:
        for start in range(0, len(body), size):
            shape.feed(body[start : start + size])
    except Problem as problem:
        return problem.code
    return None


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("around", ['["\\\\", %s]', '{"k\\"[{": %s}', "[[], {}, %s]", '["]]", "\\\\\\"]", %s]'])
def test_json_is_validated_the_same_in_any_chunks(around: str, size: int) -> None:
    value = '"[[[[\\""'
    for _ in range(json_limits.MAX_JSON_DEPTH):
        assert refuse_in_parts(value.encode(), size) is None
        value = around % value
    json.loads(value)
    expected = "TOO_DEEP" if "[]" in around else None
    assert refuse_in_parts(value.encode(), size) == expected
    assert refuse_in_parts((around % value).encode(), size) == "TOO_DEEP"


@pytest.mark.parametrize("escapes", [0, request_limits.MAX_COOKIE_ESCAPES, request_limits.MAX_COOKIE_ESCAPES + 1])
@pytest.mark.parametrize("path", ["/login", "/runs", "/login/code", "/api/v1/runs", "/healthz"])
async def test_cookies_with_many_escapes_are_not_read(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str, escapes: int
) -> None:
    unquoted: list[str] = []
    monkeypatch.setattr(http.cookies, "_unquote", unquoted.append)
    escaped = '"' + "\\a" * escapes + '"'
    answer = await api.get(path, key=None, headers={"Cookie": f"retoma-theme=dark; other={escaped}; retoma=a"})
    assert answer.status_code < 500
    read = set(unquoted)
    assert read <= ({"dark", "a"} if escapes > request_limits.MAX_COOKIE_ESCAPES else {"dark", "a", escaped})
    assert read >= {"dark", "a"}


async def test_deep_json_is_refused_before_it_is_read(api: Api) -> None:
    deep = b'{"pipeline": "film", "input": {"topic": ' + b"[" * 900 + b"]" * 900 + b"}}"
    for expected in ("application/json", "Application/JSON"):
        answer = await api.post("/api/v1/runs", content=deep, headers={"Content-Type": expected}, key=None)
        check_problem(answer, 400, "TOO_DEEP")


async def test_json_of_too_many_parts_is_refused_before_it_is_read(api: Api) -> None:
    many = b"[" + b",".join([b"[]"] * json_limits.MAX_JSON_BRACKETS) + b"]"
    check_problem(await api.post("/api/v1/runs", content=many, headers=JSON), 400, "TOO_MANY_PARTS")
    check_json_limits(b"[" + b",".join([b"{}"] * (json_limits.MAX_JSON_BRACKETS - 1)) + b"]")


class Upload:
    """A body that is sent in parts. `sent` counts the bytes that were read."""

    def __init__(self, part: bytes, times: int) -> None:
        self.sent = 0
        self._part = part
        self._times = times

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._times):
            self.sent += len(self._part)
            yield self._part


@pytest.mark.parametrize("key", [None, "rk_wrong", "rtm_" + "a" * 38])
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/api/v1/runs"), ("POST", "/login"), ("GET", "/healthz"), ("PUT", "/nowhere"), ("POST", "/logout")],
)
async def test_only_a_little_is_read_from_an_unauthenticated_client(
    api: Api, method: str, path: str, key: str | None
) -> None:
    upload = Upload(b" " * 8_192, times=2_000)
    check_problem(await api.call(method, path, content=upload, headers=JSON, key=key), 401, "API_KEY_REQUIRED")
    assert upload.sent <= request_limits.MAX_UNAUTHENTICATED_BODY_BYTES + 2 * 8_192


async def test_nothing_is_read_from_an_unauthenticated_client_that_announces_a_large_body(api: Api) -> None:
    upload = Upload(b" " * 8_192, times=9)
    headers = JSON | {"Content-Length": str(9 * 8_192)}
    answer = await api.post("/api/v1/runs", content=upload, headers=headers, key=None)
    check_problem(answer, 401, "API_KEY_REQUIRED")
    assert upload.sent <= 2 * 8_192  # what the client had at hand


async def test_a_large_body_is_parsed_only_for_authenticated_clients(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"pipeline": ' + b" " * request_limits.MAX_UNAUTHENTICATED_BODY_BYTES
    for key in (None, "rk_wrong"):
        check_problem(await api.post("/api/v1/runs", content=body, headers=JSON, key=key), 401, "API_KEY_REQUIRED")
    check_problem(await api.post("/api/v1/runs", content=body, headers=JSON), 422, "INVALID_REQUEST")

    async def away(*_: Any, **__: Any) -> Any:
        raise DatabaseUnavailable("the database does not answer")

    monkeypatch.setattr(api.client.api_keys, "find_by_secret", away)
    check_problem(
        await api.post("/api/v1/runs", content=body, headers=JSON, key="rk_other"), 503, "DATABASE_UNAVAILABLE"
    )


async def test_only_a_little_is_read_of_an_unexpected_callback(api: Api) -> None:
    upload = Upload(b" " * 8_192, times=100)
    check_problem(await api.post("/api/v1/callbacks/" + "a" * 40, content=upload, key=None), 404, "NOT_FOUND")
    assert upload.sent <= request_limits.MAX_UNAUTHENTICATED_BODY_BYTES + 2 * 8_192


async def test_a_query_of_too_many_fields_is_refused_before_it_is_parsed(api: Api) -> None:
    check_problem(await api.get("/api/v1/runs?" + "a&" * request_limits.MAX_QUERY_FIELDS), 400, "BAD_REQUEST")


@pytest.mark.parametrize("hostile", ["\\u0000", "\\ud800", "a\\u0000b"])
async def test_values_the_database_cannot_store_are_rejected_or_escaped_without_a_server_error(
    api: Api, hostile: str
) -> None:
    for body in (
        f'{{"pipeline": "film", "input": {{"topic": "{hostile}"}}}}',
        f'{{"pipeline": "film", "tenant": "{hostile}"}}',
        f'{{"pipeline": "{hostile}"}}',
        f'{{"pipeline": "film", "input": {{"{hostile}": 1}}}}',
    ):
        answer = await api.post("/api/v1/runs", content=body.encode(), headers=JSON)
        assert answer.status_code in (202, 404, 422), answer.text
    for name in ("pipeline", "tenant", "state"):
        assert (await api.get("/api/v1/runs", params={name: "\0"})).status_code == 422


async def test_a_server_error_is_logged_by_its_id_without_the_request(
    open_api: OpenApi, caplog: pytest.LogCaptureFixture
) -> None:
    router = APIRouter()

    @router.get("/accident")
    async def accident(by: Annotated[Principal, require_scope("runs:read")]) -> None:
        raise ValueError("canary-9f3b")

    async with open_api(application=App("films", pipelines=[film], routes=[router])) as api:
        with caplog.at_level(logging.DEBUG):
            answer = await api.get("/accident")
        body = check_problem(answer, 500, "INTERNAL_ERROR")
        (line,) = [record for record in caplog.records if vars(record).get("event") == "request_failed"]
        assert (line.name, line.levelname) == ("retoma.server.request_limits", "ERROR")
        assert line.__dict__["id"] == body["id"]
        assert "test_request_limits.py" in line.__dict__["where"]
        assert "canary-9f3b" not in answer.text + str([record.__dict__ for record in caplog.records])


async def test_an_unreachable_database_is_503_with_retry_after(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.get("/api/v1/runs")

    async def away(*_: Any, **__: Any) -> Any:
        raise DatabaseUnavailable("the database at db:5432/work does not answer: canary")

    for name in ("fetch", "require_current"):
        monkeypatch.setattr(api.sandbox.database, name, away)
    monkeypatch.setattr(api.client._core.starter, "start", away)
    for answer in (
        await api.get("/api/v1/runs"),
        await api.post("/api/v1/runs", json={"pipeline": "film"}),
        await api.get("/readyz"),
    ):
        check_problem(answer, 503, "DATABASE_UNAVAILABLE")
        assert answer.headers["retry-after"] == "2"
        assert "canary" not in answer.text
    assert (await api.get("/healthz")).json() == {"status": "ok"}


async def test_a_hanging_database_is_503_and_never_a_hang(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(request_limits, "RESPONSE_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(health, "TIMEOUT_SECONDS", 0.05)
    for name in ("fetch", "require_current"):
        monkeypatch.setattr(api.sandbox.database, name, hangs)
    check_problem(await api.get("/api/v1/runs"), 503, "DATABASE_UNAVAILABLE")
    check_problem(await api.get("/readyz"), 503, "DATABASE_UNAVAILABLE")


async def test_the_server_is_ready_when_the_schema_is_current(api: Api) -> None:
    assert (await api.get("/readyz", key=None)).json()["status"] == "ready"
    async with api.sandbox.database.connection() as connection:
        await connection.execute("update retoma.functions set digest = 'other', release = '0.0.1'")
        try:
            check_problem(await api.get("/readyz", key=None), 503, "SCHEMA_MISMATCH")
        finally:
            await api.sandbox.database.upgrade()


async def test_an_unknown_callback_is_not_found(api: Api) -> None:
    check_problem(await api.post(f"/api/v1/callbacks/{uuid4().hex}", key=None, json={"id": 1}), 404, "NOT_FOUND")
    check_problem(await api.post("/api/v1/callbacks/short", key=None), 422, "INVALID_REQUEST")
    large = await api.post(f"/api/v1/callbacks/{uuid4().hex}", key=None, content=b"x" * 1_100_000)  # for any caller
    check_problem(large, 413, "BODY_TOO_LARGE")


LONE = [rb"\ud800", rb"\uDFFF", rb"\udc00\ud800", rb"\ud83d\ud83d\ude00", b"\xed\xa0\x80", rb"\\\ud800"]


@pytest.mark.parametrize("text", LONE)
async def test_a_lone_surrogate_anywhere_in_a_body_is_refused(api: Api, text: bytes) -> None:
    for body in (b'{"pipeline": "film", "input": {"a": ["%s"]}}' % text, b'{"%s": 1}' % text):
        check_problem(await api.post("/api/v1/runs", content=body, headers=JSON), 422, "INVALID_REQUEST")


@pytest.mark.parametrize("text", [rb"\ud83d\ude00", rb"\\ud800", "😀퟿".encode(), rb"\uD83D\uDE00\\"])
def test_other_characters_are_not_taken_for_lone_surrogates(text: bytes) -> None:
    check_surrogates(b'{"a": "%s"}' % text)
