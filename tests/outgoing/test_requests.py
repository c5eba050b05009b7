"""Behaviour of the other side and its consequences: a deadline for the whole request, a cap on the response."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from retoma.errors import NoResponse
from retoma.outgoing import Guard, HttpClient
from tests.receiver import Responder, Writer, hang_up, receiver, respond_with
from tests.wait_timeout import WAIT_TIMEOUT

HERE = Guard.from_hosts(["127.0.0.1"])
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"


async def test_a_response_is_returned_whatever_its_status() -> None:
    async with receiver(respond_with(503, b"busy", retry_after="7")) as listener, HttpClient(HERE) as outgoing:
        answer = await outgoing.request("POST", listener.url, json={"a": "é"}, headers={"X-Key": "k"})
    assert (answer.status, answer.text, answer.headers["retry-after"], answer.is_success) == (503, "busy", "7", False)
    (got,) = listener.requests
    assert (got.json, got.headers["content-type"], got.headers["x-key"]) == ({"a": "é"}, "application/json", "k")


async def test_a_redirect_is_returned_and_not_followed() -> None:
    async with (
        receiver() as other,
        receiver(respond_with(302, location=other.url)) as listener,
        HttpClient(HERE) as outgoing,
    ):
        assert (await outgoing.request("GET", listener.url)).status == 302
    assert other.requests == []


async def test_at_most_the_limit_is_read() -> None:
    async with receiver(endless()) as listener, HttpClient(HERE) as outgoing:
        answer = await outgoing.request("GET", listener.url, limit=1_000)
    assert (len(answer.body), answer.is_cut) == (1_000, True)
    with pytest.raises(ValueError, match="exceeds the limit of 1000 bytes"):
        answer.json()


async def test_a_body_of_exactly_the_limit_is_complete() -> None:
    async with receiver(respond_with(200, b"1" * 1_000)) as listener, HttpClient(HERE) as outgoing:
        answer = await outgoing.request("GET", listener.url, limit=1_000)
    assert (len(answer.body), answer.is_cut) == (1_000, False)


async def test_compressed_content_is_not_decompressed() -> None:
    bomb = gzip.compress(b"0" * 10_000_000)
    async with receiver(respond_with(200, bomb, content_encoding="gzip")) as listener, HttpClient(HERE) as outgoing:
        answer = await outgoing.request("GET", listener.url)
    assert answer.body == bomb
    assert listener.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("slow", ["silent", "drips a body", "drips headers"])
async def test_the_deadline_covers_the_whole_response_however_slow(slow: str) -> None:
    act = {"silent": silence(), "drips a body": drips(_HEAD), "drips headers": drips(b"HTTP/1.1 200 OK\r\nx-a: ")}[slow]
    async with receiver(act) as listener, HttpClient(HERE) as outgoing:
        with pytest.raises(NoResponse, match=r"did not send a complete response within 1 s") as failed:
            await outgoing.request("GET", listener.url, timeout=1)  # in which it is surely sent
    assert failed.value.maybe_sent is True


async def test_a_request_with_a_truncated_response_may_have_been_processed() -> None:
    async with receiver(hang_up(), respond_with(200, content_length="99")) as listener, HttpClient(HERE) as outgoing:
        for _ in range(2):
            with pytest.raises(NoResponse, match="broke the connection") as failed:
                await outgoing.request("GET", listener.url)
            assert failed.value.maybe_sent is True


async def test_a_response_that_is_not_http_counts_as_no_response() -> None:
    async def act(writer: Writer) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        await writer.drain()

    async with receiver(act) as listener, HttpClient(HERE) as outgoing:
        with pytest.raises(NoResponse, match="broke the connection"):
            await outgoing.request("GET", listener.url)


async def test_a_refused_connection_is_certainly_not_sent() -> None:
    async with receiver() as listener:
        pass
    async with HttpClient(HERE) as outgoing:
        with pytest.raises(NoResponse, match="cannot be reached") as failed:
            await outgoing.request("GET", listener.url)
    assert failed.value.maybe_sent is False


async def test_an_untrusted_certificate_is_rejected(tmp_path: Path) -> None:
    async with receiver(tls=self_signed(tmp_path)) as listener, HttpClient(HERE) as outgoing:
        with pytest.raises(NoResponse, match=r"(?i)certificate") as failed:
            await outgoing.request("GET", listener.url)
    assert (failed.value.maybe_sent, listener.requests) == (False, [])


async def test_a_header_cannot_inject_another() -> None:
    async with receiver() as listener, HttpClient(HERE) as outgoing:
        with pytest.raises(NoResponse):
            await outgoing.request("GET", listener.url, headers={"x-name": "a\r\nx-other: b"})
    assert listener.requests == []


async def test_proxy_variables_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiver() as proxy, receiver() as listener, HttpClient(HERE) as outgoing:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        await outgoing.request("GET", listener.url)
    assert (len(listener.requests), proxy.requests) == (1, [])


async def test_a_connection_is_reused() -> None:
    async with receiver() as listener, HttpClient(HERE) as outgoing:
        for _ in range(3):
            await outgoing.request("GET", listener.url)
    assert listener.connections == 1


async def test_a_download_is_complete(tmp_path: Path) -> None:
    async with (
        receiver(respond_with(200, b"film" * 100, content_type="video/mp4")) as listener,
        HttpClient(HERE) as outgoing,
    ):
        answer = await outgoing.download(listener.url, tmp_path / "film.mp4", limit=1_000)
    assert (tmp_path / "film.mp4").read_bytes() == b"film" * 100
    assert answer.headers["content-type"] == "video/mp4"


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda: respond_with(200, b"x" * 1_001), "longer than 1000 bytes"),
        (lambda: endless(), "longer than 1000 bytes"),
        (lambda: respond_with(404), "the server answered 404"),
        (lambda: respond_with(302, location="http://127.0.0.1/"), "redirects are not followed"),
        (lambda: hang_up(), "broke the connection"),
        (lambda: drips(_HEAD), "did not send a complete response"),
    ],
)
async def test_a_download_that_fails_leaves_nothing(tmp_path: Path, act: Callable[[], Responder], why: str) -> None:
    patience = 0.5 if why == "did not send a complete response" else WAIT_TIMEOUT
    async with receiver(act()) as listener, HttpClient(HERE) as outgoing:
        with pytest.raises(NoResponse, match=why):
            await outgoing.download(listener.url, tmp_path / "film.mp4", limit=1_000, timeout=patience)
    assert entries(tmp_path) == []


def entries(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def endless() -> Responder:
    async def act(writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"400\r\n" + b"x" * 1_024 + b"\r\n")
            await writer.drain()

    return act


def drips(start: bytes) -> Responder:
    async def act(writer: Writer) -> None:
        writer.write(start)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    return act


def silence() -> Responder:
    async def act(writer: Writer) -> None:
        await asyncio.Event().wait()

    return act


def self_signed(folder: Path) -> ssl.SSLContext:
    made = folder / "self-signed.pem"
    requested = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run(
        ["openssl", *requested, "-keyout", made, "-out", made.with_suffix(".crt")], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.with_suffix(".crt"), made)
    return context
