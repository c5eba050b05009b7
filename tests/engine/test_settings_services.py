"""E-mail and file storage serve all tenants; the test button tries what the settings or the connection say."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI, Request, Response

from retoma import Pipeline
from retoma.errors import InvalidInput
from retoma.records import ConnectionTest
from standins.server import serve_app
from tests.conftest import OpenSandbox
from tests.notifications.smtp_server import smtp_server
from tests.notifications.test_email import _make_certificate

SECRET = "CANARY-right password"
song = Pipeline("song")


@song.step
def sung() -> str:
    return "la"


async def attempt(open_sandbox: OpenSandbox, service: str) -> ConnectionTest:
    async with open_sandbox(song) as opened:
        return await opened.client.connections.test(service)


def configure(monkeypatch: pytest.MonkeyPatch, port: int, **more: str) -> None:
    settings = {"host": "127.0.0.1", "port": str(port), "security": "none", "from": "retoma@example.com", **more}
    for name, value in settings.items():
        monkeypatch.setenv(f"RETOMA_SMTP_{name.upper()}", value)


async def test_the_smtp_server_is_tried_without_a_message(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with smtp_server() as server:
        configure(monkeypatch, server.port)
        result = await attempt(open_sandbox, "smtp")
    assert (result.is_ok, result.message) == (True, f"127.0.0.1 port {server.port} answers")
    assert server.mails == []


@pytest.mark.parametrize(("password", "is_ok"), [("right password", True), (SECRET, False)])
async def test_the_login_of_the_smtp_server_is_tried(
    password: str, is_ok: bool, open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with smtp_server(_make_certificate(tmp_path, monkeypatch)) as server:
        configure(monkeypatch, server.port, security="starttls", username="me", password=password)
        result = await attempt(open_sandbox, "smtp")
    assert result.is_ok is is_ok
    assert SECRET not in result.message


async def test_an_smtp_server_that_is_not_set_or_not_there_says_so(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "set RETOMA_SMTP_HOST" in (await attempt(open_sandbox, "smtp")).message
    configure(monkeypatch, 1)
    assert not (await attempt(open_sandbox, "smtp")).is_ok


async def test_the_connection_to_the_smtp_server_is_tried(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(song) as opened, smtp_server() as server:
        await opened.client.connections.set("smtp", server.connection())
        assert (await opened.client.connections.test("smtp")).is_ok
        await opened.client.connections.set("smtp", {"port": "25 "})
        assert not (await opened.client.connections.test("smtp")).is_ok


async def test_no_tenant_has_an_smtp_server_of_its_own(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(song) as opened:
        with pytest.raises(InvalidInput, match="smtp serves all tenants"):
            await opened.client.connections.set("smtp", {"host": "mail.example.com", "from": "a@b.cc"}, tenant="blog")


async def test_the_password_is_not_sent_to_another_smtp_server(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(song) as opened:
        values = {"host": "mail.example.com", "from": "retoma@example.com", "password": SECRET}
        await opened.client.connections.set("smtp", values)
        with pytest.raises(InvalidInput, match="host of smtp changes: enter password again too"):
            await opened.client.connections.set("smtp", {"host": "mail.example.org"})


async def test_the_bucket_is_written_and_read(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored: dict[str, bytes] = {}
    bucket = FastAPI(openapi_url=None)

    @bucket.api_route("/{path:path}", methods=["GET", "PUT"], response_model=None)
    async def answer(path: str, request: Request) -> Response:
        if request.method == "PUT":
            stored[path] = await request.body()
            return Response(headers={"ETag": '"1"'})
        if path not in stored:
            return Response(status_code=404)
        return Response(stored[path], headers={"ETag": '"1"', "Last-Modified": "Mon, 01 Jan 2029 00:00:00 GMT"})

    async with serve_app(bucket) as origin:
        monkeypatch.setenv("RETOMA_HOME", str(tmp_path))
        monkeypatch.setenv("RETOMA_FILES_URL", f"s3://films/retoma?endpoint={origin}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        result = await attempt(open_sandbox, "files")
        assert (result.is_ok, result.message) == (True, "s3://films/retoma can be written and read")
        assert list(stored) == ["films/retoma/connection-test"]
        monkeypatch.setenv("RETOMA_FILES_URL", f"s3://films/retoma?endpoint={origin}0")
        failed = await attempt(open_sandbox, "files")
    assert not failed.is_ok
    assert SECRET not in failed.message


async def test_a_folder_of_files_is_tried_too(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RETOMA_HOME", str(tmp_path))
    assert (await attempt(open_sandbox, "files")).is_ok


async def test_file_storage_cannot_be_entered(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(song) as opened:
        with pytest.raises(InvalidInput, match="configured by settings: RETOMA_FILES_URL"):
            await opened.client.connections.set("files", {})
