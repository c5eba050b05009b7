"""`python -m bench.hostile_requests`: how long one anonymous request can block the server's event loop.

The server has all applications and single sign-on. Each hostile request is sent several times without a key. The
result is the CPU time of the longest callback of the loop, because the server answers nobody else meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import time
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import structlog

from bench.machine import describe
from bench.server import open_server as database_server
from bench.testbed import Rig
from retoma import App, connect
from retoma.cli.garbage_collection import collect_rarely
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.server import make_server
from retoma.server.request_limits import MAX_COOKIE_ESCAPES
from retoma.settings import Settings

LIMIT = 10.0  # milliseconds
SECONDS_FOR_ANSWER = 30.0
MIB = 1 << 20


def post(path: str, body: bytes, media_type: str = "application/json", *, announced: bool = True) -> bytes:
    length = b"Content-Length: %d" % len(body) if announced else b"Transfer-Encoding: chunked"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\nContent-Type: {media_type}\r\n".encode()
    return head + length + b"\r\nConnection: close\r\n\r\n" + body


def get(path: str, headers: bytes = b"", *, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n".encode() + headers + b"Connection: close\r\n\r\n"


def in_chunks(body: bytes, size: int) -> bytes:
    parts = (body[start : start + size] for start in range(0, len(body), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=x"
SMALL = 65_000  # bytes read from an anonymous client
BRACKETS = b'"[]' * (SMALL // 3)
NUMBERS = b"[" + b"1," * (SMALL // 2) + b"1]"
FIELDS = "a=%C3&" * 999
LONG = "a" * 15_000
TEXT_FORM = b"password=" + b"%C3" * 5_000
MARKUP = b"%22" * 5_000  # each becomes five characters of a page
TOKEN = "a" * 43
RUN = "00000000-0000-0000-0000-000000000007"
DIGEST = "0" * 64
ESCAPES = b'"' + b"\\a" * 7_000 + b'"'
FEW_ESCAPES = b'"' + b"\\a" * MAX_COOKIE_ESCAPES + b"a" * 14_500 + b'"'
COOKIE = b"Cookie: retoma=a; retoma-login=%s; retoma-second-factor=%s\r\n" % (b"a.b" * 2_400, b"a.b" * 2_400)
REQUESTS = {
    "16 MiB of strings and brackets": post("/api/v1/runs", b'"[]' * (16 * MIB // 3)),
    "16 MiB of [": post("/api/v1/runs", b"[" * 16 * MIB),
    "64 kB of strings and brackets": post("/api/v1/runs", BRACKETS),
    "64 kB of [": post("/api/v1/runs", b"[" * SMALL),
    "64 kB of flat arrays": post("/api/v1/runs", b"[" + b"[]," * (SMALL // 3) + b"1]"),
    "64 kB of objects": post("/api/v1/runs", b"[" + b'{"a":1},' * (SMALL // 8) + b"1]"),
    "64 kB of backslashes": post("/api/v1/runs", b'"' + b"\\" * SMALL),
    "64 kB of surrogates": post("/api/v1/runs", b'"' + rb"\ud83d\ude00" * (SMALL // 12) + b'"'),
    "64 kB of numbers": post("/api/v1/runs", NUMBERS),
    "64 kB of one number": post("/api/v1/runs", b"0." + b"1" * SMALL),
    "64 kB in chunks of one byte": post("/api/v1/runs", in_chunks(b" " * SMALL, 1), announced=False),
    "a media type of 15 kB": post("/api/v1/runs", NUMBERS[:1_001], "application/json" + ';a="' * 3_700),
    "a key of 15 kB": get("/api/v1/runs", b"Authorization: Bearer " + LONG.encode() + b"\r\n"),
    "a GPU job of 64 kB": post("/video/img2vid/async", NUMBERS),
    "a GPU job of 16 MiB": post("/video/caption/async", b"[" * 16 * MIB),
    "a project of 64 kB": post("/projetos", NUMBERS),
    "a document of 16 MiB": post("/arquivos", b"a" * 16 * MIB, "application/pdf"),
    "a form of 1 MB as a document": post("/arquivos", b"--x\r\n" * 200_000, MULTIPART),
    "a story of 64 kB": post("/stories", BRACKETS),
    "a video of 64 kB": post("/api/v1/videos", BRACKETS),
    "an import of 1 MB": post("/autowriter/imports", b'",\n' * 350_000, "text/csv"),
    "an import of 1 MB to check": post("/autowriter/imports/preview", b'",\n' * 350_000, "text/csv"),
    "an import of 1 MB on its page": post("/articles/imports", b"--x\r\n" * 200_000, MULTIPART),
    "a callback of 1 MB": post("/api/v1/callbacks/" + TOKEN, b"[" * 1_000_000),
    "a callback of 64 kB": post("/api/v1/callbacks/" + TOKEN, BRACKETS),
    "a callback with a token of 15 kB": post("/api/v1/callbacks/" + LONG, b"{}"),
    "a notification of WordPress of 64 kB": post("/webhooks/wp-job-updated", BRACKETS),
    "a notification of WordPress of 1 MB": post("/webhooks/wp-job-updated", b"[" * 1_000_000),
    "a login form of 1 MB": post("/login", b"a=%C3&" * 160_000, FORM),
    "a login form of 64 kB": post("/login", b"a=%C3&" * (SMALL // 6), FORM),
    "a login form of 16 kB": post("/login", TEXT_FORM, FORM),
    "a login form of 16 kB that is shown again": post("/login", b"password=a&email=" + MARKUP, FORM),
    "a password of 1,000 characters": post("/login", b"email=a%40example.com&password=" + b"a" * 1_000, FORM),
    "a login form of 16 kB in parts": post("/login", b'--x\r\nContent-Disposition: ;name="' * 400, MULTIPART),
    "a code of 16 kB": post("/login/code", b"code=" + MARKUP, FORM),
    "a code with a cookie of 15 kB": get("/login/code", COOKIE),
    "a second factor of 16 kB": post("/login/second-factor", b"offer=" + b"a.b" * 5_000, FORM),
    "a second factor with a cookie of 15 kB": get("/login/second-factor", COOKIE),
    "single sign-on with a query of 999 fields": get("/login/oidc?" + FIELDS),
    "single sign-on with a path of 15 kB": get("/login/oidc?to=/" + LONG),
    "a return from single sign-on of 15 kB": get(f"/login/oidc/callback?state={LONG[:7_000]}&code={LONG[:7_000]}"),
    "a return from single sign-on with a cookie of 15 kB": get("/login/oidc/callback?state=a&code=a", COOKIE),
    "a return from a consent of 15 kB": get(f"/connections/consent?state={LONG[:7_000]}&code={LONG[:7_000]}"),
    "a link to set a password of 15 kB": get("/set-password/" + LONG),
    "a form to set a password of 16 kB": post("/set-password/" + TOKEN, b"again=a&" + TEXT_FORM, FORM),
    "a new password of 1,000 characters": post(
        "/set-password/" + TOKEN, b"password=%s&again=%s" % (b"a" * 1_000, b"a" * 1_000), FORM
    ),
    "a script with a name of 15 kB": get("/static/" + LONG),
    "a stylesheet with a tag of 15 kB": get("/static/retoma.css", b"If-None-Match: " + LONG.encode() + b"\r\n"),
    "a script of an application with a name of 15 kB": get("/static/apps/" + LONG[:7_000] + "/" + LONG[:7_000]),
    "an output with a path of 15 kB": get("/files/gpu/" + "a/" * 7_500),
    "an output with a range of 15 kB": get("/files/gpu/a.mp4", b"Range: bytes=" + b"1" * 15_000 + b"-\r\n"),
    "the headers of an output with a path of 15 kB": get("/files/gpu/" + "a/" * 7_500, method="HEAD"),
    "a link to a file of a run of 15 kB": get(f"/api/v1/runs/{RUN}/files/{DIGEST}?expires=9&signature={LONG}"),
    "a link to a file of a run": get(f"/api/v1/runs/{RUN}/files/{DIGEST}?expires=9&signature={TOKEN}"),
    "a link to a video of 15 kB": get(f"/api/v1/files/film/{RUN}/{DIGEST}/{LONG[:7_000]}?expires=9&signature={TOKEN}"),
    "a health check with a query of 999 fields": get("/healthz?" + FIELDS),
    "a readiness check with a query of 999 fields": get("/readyz?" + FIELDS),
    "a query of 15 kB": get("/login?" + "a&" * 7_500),
    "a query of 999 fields": get("/login?" + FIELDS),
    "a query of 999 fields without a login": get("/runs?" + FIELDS),
    "a path of 15 kB": get("/" + "a/" * 7_500, b"Accept: text/html\r\n"),
    "4,000 headers": get("/healthz", b"a:\r\n" * 4_000),
    "a cookie of 15 kB": get("/runs", b"Cookie: " + b"a=b; " * 3_000 + b"\r\n"),
    "a cookie of escapes": get("/runs", b"Cookie: retoma=" + ESCAPES + b"\r\n"),
    "a cookie of 15 kB with a few escapes": get("/login", b"Cookie: retoma-theme=" + FEW_ESCAPES + b"\r\n"),
    "a cookie of escapes at the login": get("/login", b"Cookie: retoma-theme=" + ESCAPES + b"\r\n"),
    "languages of 15 kB": get("/login", b"Accept-Language: " + b"xx," * 5_000 + b"\r\n"),
    "encodings of 15 kB": get("/login", b"Accept-Encoding: " + b"a," * 7_500 + b"\r\n"),
    "an origin of 15 kB": post("/login", b"a=b", FORM).replace(b"http://x", b"http://[" + b":" * 15_000 + b"]"),
    "addresses of 15 kB": get("/login", b"X-Forwarded-For: " + b"1," * 7_500 + b"\r\n"),
    "256 kB that are not HTTP": b"\xff" * 256 * 1024 + b"\r\n\r\n",
}
ADDRESSES = (f"10.0.{each >> 8}.{each & 255}" for each in count(1))


class LoopBlockTimer:
    """The longest callback since the last `reset`, in milliseconds of CPU time."""

    def __init__(self) -> None:
        self.longest = 0.0

    def reset(self) -> None:
        self.longest = 0.0

    def note(self, milliseconds: float) -> None:
        self.longest = max(self.longest, milliseconds)


@contextmanager
def watch_loop() -> Iterator[LoopBlockTimer]:
    """Measure every callback of the loops of this process."""
    occupied = LoopBlockTimer()
    run = Handle._run

    def timed(self: Handle) -> Any:
        began = time.thread_time()
        try:
            return run(self)
        finally:
            occupied.note((time.thread_time() - began) * 1_000)

    Handle._run = timed  # type: ignore[method-assign]
    try:
        yield occupied
    finally:
        Handle._run = run  # type: ignore[method-assign]


@cache
def open_app() -> App:
    """Import the applications only when they are served: they read their settings from the environment."""
    import retoma_apps

    app: App = retoma_apps.app
    return app


def make_settings(**more: Any) -> Settings:
    """Return settings with single sign-on, at a provider that does not answer, and a proxy that names the clients."""
    return Settings(
        port=0,
        public_url="http://x",
        oidc_issuer="http://127.0.0.1:9",
        oidc_client_id="bench",
        trusted_proxies="127.0.0.1",
        **more,
    )


async def measure(rig: Rig, repeats: int) -> dict[str, float]:
    """Return the longest time in milliseconds that each request blocked the loop."""
    async with rig.testbed() as stage:
        settings = make_settings(database_url=stage.url)
        async with connect(open_app(), settings) as client:
            server = make_server(open_app(), client, settings)
            collect_rarely()  # as `retoma serve` does: a full collection would be measured as the request's work
            with bind_socket(settings, "127.0.0.1") as listening, watch_loop() as occupied:
                async with run_server(server, listening, settings):
                    port = urlsplit(get_address(listening)).port or 0
                    for path in ("/login", "/projetos"):  # templates and catalogues are loaded once
                        await asyncio.to_thread(send, port, get(path))
                    return await measure_requests(port, occupied, repeats)


async def measure_requests(port: int, occupied: LoopBlockTimer, repeats: int) -> dict[str, float]:
    found = {}
    for name, request in REQUESTS.items():
        occupied.reset()
        for _ in range(repeats):
            await asyncio.to_thread(send, port, from_own_address(request))
        found[name] = occupied.longest
    return found


def from_own_address(request: bytes) -> bytes:
    """Return the request as the proxy passes it on. Each has another address, so no rate limit hides its cost."""
    return request.replace(b"\r\n", b"\r\nX-Forwarded-For: %s\r\n" % next(ADDRESSES).encode(), 1)


def send(port: int, request: bytes) -> None:
    """Send a request and wait until the server has answered or closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS_FOR_ANSWER) as connection:
        try:
            connection.sendall(request)
            while connection.recv(65_536):
                pass
        except ConnectionError:
            pass  # it was rejected


async def main(repeats: int, scale: float) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    async with database_server() as server:
        try:
            for name, value in (await describe(server)).items():
                print(f"{name}: {value}")
            found = await measure(Rig(server, scale), repeats)
        finally:
            await server.close()
    for name, milliseconds in sorted(found.items(), key=lambda each: -each[1]):
        print(f"{milliseconds:8.2f} ms  {name}{'  <- too long' if milliseconds > LIMIT else ''}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.hostile_requests", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="how often each request is sent")
    asked = parser.parse_args()
    asyncio.run(main(asked.repeats, 1.0))
