"""The resident memory of real servers and workers, whatever the collector of Python does."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.terminal import Terminal, wait_until
from tests.cli.test_serve import address_of
from tests.system_packages import require
from tests.wait_timeout import WAIT_TIMEOUT

MEGABYTE = 1 << 20
REQUESTS, BODY = 200, MEGABYTE
RUNS, DOCUMENT = 10, 40 * MEGABYTE
MOST = 100 * MEGABYTE  # half of what all requests, and an eighth of what all attempts, hold together

FAILING = f"""
import asyncio
from retoma import Pipeline, Retry

film = Pipeline("film", retry=Retry(0))


@film.step(on_failure="continue")
def page() -> int:
    document = bytearray(b"x") * {DOCUMENT}
    raise ValueError(f"a document of {{len(document)}} bytes cannot be read")


@film.step(on_failure="continue")
async def picture() -> int:
    document = bytearray(b"x") * {DOCUMENT}
    await asyncio.sleep(0)
    raise ValueError(f"a picture of {{len(document)}} bytes cannot be drawn")


app = film
"""


@pytest.fixture(autouse=True)
def on_linux() -> None:
    require(sys.platform == "linux", "Linux, whose /proc tells the memory of a process")


@contextmanager
def check_memory_retained(pid: int) -> Iterator[None]:
    before = resident(pid)
    yield
    assert resident(pid) - before < MOST


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) * 1024


@pytest.mark.parametrize("is_known", [False, True], ids=["stranger", "known caller"])
def test_a_server_retains_no_memory_of_rejected_requests(terminal: Terminal, is_known: bool) -> None:
    created = terminal.out("keys", "create", "films", "--scope", "runs:write")
    key = re.search(r"rtm_[a-z2-7]+", created)
    assert key
    with terminal.process("serve", "film.py", "--port", "0") as server:
        address = address_of(server)
        refusals = {b"422"} if is_known else {b"401", b"429"}
        assert post(address, key[0] if is_known else "wrong") in refusals
        with check_memory_retained(server.pid):
            for _ in range(REQUESTS):
                assert post(address, key[0] if is_known else "wrong") in refusals


def post(address: str, key: str) -> bytes:
    """Send a large invalid body and return the status. The server may answer before everything is sent."""
    host, port = urlsplit(address).hostname, urlsplit(address).port
    head = f"POST /api/v1/runs HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, port), timeout=WAIT_TIMEOUT) as connection:
        connection.sendall(f"{head}Content-Length: {BODY}\r\n\r\n".encode())
        with suppress(ConnectionError):
            connection.sendall(b" " * BODY)
        return connection.recv(64).split()[1]


def test_a_worker_retains_no_memory_of_failed_attempts(terminal: Terminal) -> None:
    (terminal.folder / "film.py").write_text(FAILING)
    with terminal.worker("--concurrency", "2") as worker, check_memory_retained(worker.pid):
        runs = [terminal.start() for _ in range(RUNS)]
        for run in runs:
            wait_until(lambda: terminal.state(run) in {"failed", "completed_with_errors"})  # noqa: B023
