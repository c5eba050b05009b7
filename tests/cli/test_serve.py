"""`retoma serve`, `retoma keys`, `retoma pools`, and the server of `retoma dev`."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from retoma import Pipeline
from retoma.cli.http_server import run_maintenance
from retoma.engine import background_loops
from retoma.settings import Settings
from retoma.store import workers
from retoma.store.database import Database
from tests.cli.terminal import Process, Terminal, wait_until
from tests.conftest import OpenSandbox
from tests.ports import free_port
from tests.system_packages import require
from tests.wait_timeout import WAIT_TIMEOUT

POOLED = """
from retoma import Pipeline, Pool

gpu = Pool("gpu", capacity=3)
film = Pipeline("film")


@film.step(pool=gpu)
def clip() -> int:
    return 1
"""


def address_of(server: Process) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+", server.wait_for_output("http://127.0.0.1:"))
    assert found is not None
    return found[0]


def start(address: str, key: str | None = None) -> Any:
    headers = {"X-API-Key": key} if key else {}
    return httpx2.post(f"{address}/api/v1/runs", json={"pipeline": "film"}, headers=headers, timeout=WAIT_TIMEOUT)


def test_serve_explains_how_to_create_a_key_and_requires_one(terminal: Terminal) -> None:
    with terminal.process("serve", "film.py", "--port", "0") as server:
        address = address_of(server)
        assert "retoma keys create NAME --scope runs:read" in server.wait_for_output("There is no API key yet")
        assert start(address).status_code == 401
        key = terminal.out("keys", "create", "n8n").strip()
        run = start(address, key)
        assert run.status_code == 202
        assert terminal.state(run.json()["id"]) == "running"
        (listed,) = terminal.json("keys", "list")
        assert (listed["name"], listed["scopes"]) == ("n8n", ["runs:read", "runs:write"])
        assert key.startswith(listed["begins"])
        terminal.out("keys", "revoke", str(listed["id"]))
        wait_until(lambda: start(address, key).status_code == 401)
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait_for_exit() == 0
        assert "server_stopped" in server.output.read_text()
        assert key not in server.output.read_text()


async def test_maintenance_of_a_server_continues_after_an_unexpected_error(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, again = 0, asyncio.Event()

    async def promote(*_: Any) -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise ValueError("a bug of ours")
        again.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(background_loops, "SECONDS_BEFORE_RESTART", 0.0)
    monkeypatch.setattr(workers, "release_due_jobs", promote)
    async with run_maintenance(database, Settings()):
        await asyncio.wait_for(again.wait(), WAIT_TIMEOUT)


async def test_a_server_ends_a_run_without_live_jobs(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("still")

    @pipeline.step
    def only() -> None: ...

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        async with sandbox.database.connection() as connection:
            await connection.execute("delete from retoma.jobs where run = $1", run)
        async with run_maintenance(sandbox.database, Settings()):
            ended = await asyncio.wait_for(sandbox.client.wait(run), WAIT_TIMEOUT)
    assert ended.state == "failed"


def test_serve_listens_on_the_configured_address(terminal: Terminal) -> None:
    port = free_port()
    with terminal.process("serve", PORT=str(port)) as server:
        assert address_of(server) == f"http://127.0.0.1:{port}"
        assert httpx2.get(f"http://127.0.0.1:{port}/readyz", timeout=WAIT_TIMEOUT).json() == {
            "status": "ready",
            "loop_restarts": {"maintenance": 0, "bulk_actions": 0, "retention": 0, "schedules": 0},
        }
        second = terminal.run("serve", "--port", str(port))
        assert second.returncode == 2
        assert "set another with RETOMA_PORT" in second.stderr
        os.kill(server.pid, signal.SIGINT)
        assert server.wait_for_exit() == 0


def test_dev_serves_this_machine_at_the_printed_url_and_with_the_key_in_its_home(terminal: Terminal) -> None:
    with terminal.process("dev", "film.py") as dev:
        dev.wait_for_output("worker_ready")
        address = address_of(dev)
        printed = re.search(rf"{address}/\?token=\S+", dev.output.read_text())
        assert printed is not None
        with httpx2.Client(follow_redirects=True, timeout=WAIT_TIMEOUT) as browser:
            assert browser.get(f"{address}/runs").status_code == 401
            assert browser.get(printed[0]).status_code == 200
            assert browser.get(f"{address}/runs").status_code == 200
        file = terminal.folder / "home" / "dev-key"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        key = {"X-API-Key": file.read_text()}
        run = start(address, key["X-API-Key"]).json()["id"]
        shown = f"{address}/api/v1/runs/{run}"
        wait_until(lambda: httpx2.get(shown, headers=key, timeout=WAIT_TIMEOUT).json()["state"] == "completed")
        assert httpx2.get(shown, timeout=WAIT_TIMEOUT).status_code == 401
        rebound = httpx2.get(shown, headers=key | {"Host": "rebound.example"}, timeout=WAIT_TIMEOUT)
        assert rebound.status_code == 401
        os.kill(dev.pid, signal.SIGINT)
        assert dev.wait_for_exit() == 0
        assert not file.exists()


PROXIES = {
    "plain": "proxy_pass http://127.0.0.1:{port};",
    "without a trace": 'proxy_pass http://127.0.0.1:{port}; proxy_http_version 1.1; proxy_set_header Connection "";',
}


@pytest.mark.parametrize("directives", PROXIES.values(), ids=PROXIES)
def test_dev_behind_nginx_admits_nobody(terminal: Terminal, directives: str) -> None:
    require(shutil.which("nginx") is not None, "nginx (apt-get install nginx-light)")
    with terminal.process("dev", "film.py", "--port", "0") as dev:
        dev.wait_for_output("worker_ready")
        address = address_of(dev)
        with open_nginx(terminal.folder, directives.format(port=address.rpartition(":")[2])) as proxied:
            public = {"Host": "retoma.example"}
            for path in ("/", "/runs", "/api/v1/runs", "/metrics", "/api/v1/openapi.json"):
                answer = httpx2.get(f"{proxied}{path}", headers=public, follow_redirects=False, timeout=WAIT_TIMEOUT)
                assert (answer.status_code, answer.headers.get("location", "")[:6]) in ((401, ""), (303, "/login"))
            started = httpx2.post(
                f"{proxied}/api/v1/runs", headers=public, json={"pipeline": "film"}, timeout=WAIT_TIMEOUT
            )
            assert started.status_code == 401
            response = httpx2.get(f"{proxied}/login", headers=public, timeout=WAIT_TIMEOUT)
            assert response.status_code == 401
        key = {"X-API-Key": (terminal.folder / "home" / "dev-key").read_text()}
        assert httpx2.get(f"{address}/api/v1/runs", headers=key, timeout=WAIT_TIMEOUT).json()["runs"] == []


@contextmanager
def open_nginx(folder: Path, directives: str) -> Iterator[str]:
    """Start nginx and yield its URL. It is stopped by its process id."""
    port = free_port()
    temporary = " ".join(f"{name}_temp_path {folder}/{name};" for name in ("proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; events {{}} "
        f"http {{ access_log off; client_body_temp_path {folder}/body; {temporary} "
        f"server {{ listen 127.0.0.1:{port}; location / {{ {directives} }} }} }}"
    )
    child = subprocess.Popen(["nginx", "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait()


def _answers(port: int) -> bool:
    with socket.socket() as there:
        return there.connect_ex(("127.0.0.1", port)) == 0


def test_dev_chooses_another_port_if_the_default_is_in_use(terminal: Terminal) -> None:
    with terminal.process("dev", "film.py") as first, terminal.process("dev", "film.py") as second:
        assert address_of(first) != address_of(second)
        for dev in (first, second):
            dev.wait_for_output("worker_ready")
            os.kill(dev.pid, signal.SIGTERM)
        assert (first.wait_for_exit(), second.wait_for_exit()) == (0, 0)


def test_a_key_is_rotated_and_its_secret_shown_once(terminal: Terminal) -> None:
    made = terminal.json("keys", "create", "n8n", "--tenant", "blog", "--scope", "runs:read", "--expires", "90d")
    rotated = terminal.json("keys", "rotate", str(made["id"]), "--overlap", "2h")
    assert rotated["secret"] != made["secret"]
    assert (rotated["tenant"], rotated["scopes"]) == ("blog", ["runs:read"])
    listed = terminal.out("keys", "list")
    assert made["secret"] not in listed
    assert rotated["secret"] not in listed
    assert terminal.run("keys", "rotate", str(made["id"])).returncode == 4
    assert terminal.run("keys", "revoke", "0").returncode == 3
    assert terminal.run("keys", "create", "x", "--tenant", "blog", "--scope", "admin").returncode == 2


def test_a_pool_is_changed_at_runtime(terminal: Terminal) -> None:
    (terminal.folder / "pooled.py").write_text(POOLED)
    terminal.out("start", "film", "pooled.py")
    (pool,) = terminal.json("pools", "list")
    assert (pool["name"], pool["capacity"], pool["waiting"]) == ("gpu", 3, 1)
    assert terminal.json("pools", "update", "gpu", "--capacity", "5")["capacity"] == 5
    assert terminal.run("pools", "update", "cpu", "--capacity", "5").returncode == 3
    assert terminal.run("pools", "update", "gpu").returncode == 2


def test_serve_warns_about_a_missing_public_url_if_other_machines_call(terminal: Terminal) -> None:
    with terminal.process("serve", "--port", "0", "--host", "0.0.0.0") as server:
        assert "RETOMA_PUBLIC_URL is not set" in server.wait_for_output("server_ready")
