"""`python -m bench.hostile_requests`: how long one anonymous request can block the server's event loop.

Each hostile request is sent several times without a key. The result is the CPU time of the longest callback of the
loop, because the server answers nobody else meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import time
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import structlog

from bench.machine import describe
from bench.server import open_server as database_server
from bench.testbed import Rig
from bench.workloads import app
from retoma.cli.garbage_collection import collect_rarely
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.server import make_server
from retoma.settings import Settings

LIMIT = 10.0  # milliseconds
SECONDS_FOR_ANSWER = 30.0
MIB = 1 << 20


def post(path: str, body: bytes, media_type: str = "application/json", *, announced: bool = True) -> bytes:
    length = b"Content-Length: %d" % len(body) if announced else b"Transfer-Encoding: chunked"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\nContent-Type: {media_type}\r\n".encode()
    return head + length + b"\r\nConnection: close\r\n\r\n" + body


def get(path: str, headers: bytes = b"") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n".encode() + headers + b"Connection: close\r\n\r\n"


def in_chunks(body: bytes, size: int) -> bytes:
    parts = (body[start : start + size] for start in range(0, len(body), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


FORM = "application/x-www-form-urlencoded"
SMALL = 65_000  # bytes read from an anonymous client
REQUESTS = {
    "16 MiB of strings and brackets": post("/api/v1/runs", b'"[]' * (16 * MIB // 3)),
    "16 MiB of [": post("/api/v1/runs", b"[" * 16 * MIB),
    "64 kB of strings and brackets": post("/api/v1/runs", b'"[]' * (SMALL // 3)),
    "64 kB of [": post("/api/v1/runs", b"[" * SMALL),
    "64 kB of flat arrays": post("/api/v1/runs", b"[" + b"[]," * (SMALL // 3) + b"1]"),
    "64 kB of backslashes": post("/api/v1/runs", b'"' + b"\\" * SMALL),
    "64 kB of numbers": post("/api/v1/runs", b"[" + b"1," * (SMALL // 2) + b"1]"),
    "64 kB in chunks of one byte": post("/api/v1/runs", in_chunks(b" " * SMALL, 1), announced=False),
    "a callback of 1 MB": post("/api/v1/callbacks/" + "a" * 43, b"[" * 1_000_000),
    "a callback of 64 kB": post("/api/v1/callbacks/" + "a" * 43, b'"[]' * (SMALL // 3)),
    "a login form of 1 MB": post("/login", b"a=%C3&" * 160_000, FORM),
    "a login form of 64 kB": post("/login", b"a=%C3&" * (SMALL // 6), FORM),
    "a login form of 16 kB": post("/login", b"password=" + b"%C3" * 5_000, FORM),
    "a query of 15 kB": get("/login?" + "a&" * 7_500),
    "a query of 999 fields": get("/login?" + "a=%C3&" * 999),
    "a path of 15 kB": get("/" + "a/" * 7_500, b"Accept: text/html\r\n"),
    "4,000 headers": get("/healthz", b"a:\r\n" * 4_000),
    "a cookie of 15 kB": get("/runs", b"Cookie: " + b"a=b; " * 3_000 + b"\r\n"),
    "languages of 15 kB": get("/login", b"Accept-Language: " + b"xx," * 5_000 + b"\r\n"),
    "256 kB that are not HTTP": b"\xff" * 256 * 1024 + b"\r\n\r\n",
}


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


async def measure(rig: Rig, repeats: int) -> dict[str, float]:
    """Return the longest time in milliseconds that each request blocked the loop."""
    settings = Settings(port=0)
    async with rig.testbed() as stage:
        server = make_server(app, stage.client, settings)
        collect_rarely()  # as `retoma serve` does: a full collection would be measured as the request's work
        with bind_socket(settings, "127.0.0.1") as listening, watch_loop() as occupied:
            async with run_server(server, listening, settings):
                port = urlsplit(get_address(listening)).port or 0
                await asyncio.to_thread(send, port, get("/login"))  # templates are compiled once
                found = {}
                for name, request in REQUESTS.items():
                    occupied.reset()
                    for _ in range(repeats):
                        await asyncio.to_thread(send, port, request)
                    found[name] = occupied.longest
                return found


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
