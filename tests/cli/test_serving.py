"""`retoma serve`, `retoma keys`, `retoma pools`, and the server of `retoma dev`."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from typing import Any

import httpx2
import pytest

from retoma.cli.listening import kept_up
from retoma.engine import loops
from retoma.settings import Settings
from retoma.store import workers
from retoma.store.database import Database
from tests.cli.terminal import Process, Terminal, until
from tests.patience import PATIENCE
from tests.ports import free_port

POOLED = """
from retoma import Pipeline, Pool

gpu = Pool("gpu", capacity=3)
film = Pipeline("film")


@film.step(pool=gpu)
def clip() -> int:
    return 1
"""


def address_of(server: Process) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+", server.says("http://127.0.0.1:"))
    assert found is not None
    return found[0]


def start(address: str, key: str | None = None) -> Any:
    headers = {"X-API-Key": key} if key else {}
    return httpx2.post(f"{address}/api/v1/runs", json={"pipeline": "film"}, headers=headers, timeout=PATIENCE)


def test_serve_says_how_to_make_a_key_and_needs_one(terminal: Terminal) -> None:
    with terminal.process("serve", "film.py", "--port", "0") as server:
        address = address_of(server)
        assert "retoma keys create NAME --scope runs:read" in server.says("No API key exists yet")
        assert start(address).status_code == 401
        key = terminal.out("keys", "create", "n8n").strip()
        run = start(address, key)
        assert run.status_code == 202
        assert terminal.state(run.json()["id"]) == "running"
        (listed,) = terminal.json("keys", "list")
        assert (listed["name"], listed["scopes"]) == ("n8n", ["runs:read", "runs:write"])
        assert key.startswith(listed["begins"])
        terminal.out("keys", "revoke", str(listed["id"]))
        until(lambda: start(address, key).status_code == 401)
        os.kill(server.pid, signal.SIGTERM)
        assert server.ended() == 0
        assert "server stopped" in server.output.read_text()
        assert key not in server.output.read_text()


async def test_the_upkeep_of_a_server_goes_on_after_an_unforeseen_error(
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

    monkeypatch.setattr(loops, "SECONDS_BEFORE_AGAIN", 0.0)
    monkeypatch.setattr(workers, "promote", promote)
    async with kept_up(database, Settings()):
        await asyncio.wait_for(again.wait(), PATIENCE)


def test_serve_listens_where_it_is_told(terminal: Terminal) -> None:
    port = free_port()
    with terminal.process("serve", PORT=str(port)) as server:
        assert address_of(server) == f"http://127.0.0.1:{port}"
        assert httpx2.get(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE).json() == {"status": "ready"}
        second = terminal.run("serve", "--port", str(port))
        assert second.returncode == 2
        assert "choose another with RETOMA_PORT" in second.stderr
        os.kill(server.pid, signal.SIGINT)
        assert server.ended() == 0


def test_dev_serves_this_machine_without_a_key(terminal: Terminal) -> None:
    with terminal.process("dev", "film.py") as dev:
        dev.says("worker ready")
        address = address_of(dev)
        assert "(open it in a browser; neither login nor key needed on this machine)" in dev.output.read_text()
        run = start(address).json()["id"]
        until(lambda: httpx2.get(f"{address}/api/v1/runs/{run}", timeout=PATIENCE).json()["state"] == "completed")
        rebound = httpx2.get(f"{address}/api/v1/runs", headers={"Host": "rebound.example"}, timeout=PATIENCE)
        assert rebound.status_code == 401
        os.kill(dev.pid, signal.SIGINT)
        assert dev.ended() == 0


def test_dev_takes_another_port_if_nobody_chose_the_one_that_is_taken(terminal: Terminal) -> None:
    with terminal.process("dev", "film.py") as first, terminal.process("dev", "film.py") as second:
        assert address_of(first) != address_of(second)
        for dev in (first, second):
            dev.says("worker ready")
            os.kill(dev.pid, signal.SIGTERM)
        assert (first.ended(), second.ended()) == (0, 0)


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


def test_a_pool_is_changed_while_everything_runs(terminal: Terminal) -> None:
    (terminal.folder / "pooled.py").write_text(POOLED)
    terminal.out("start", "film", "pooled.py")
    (pool,) = terminal.json("pools", "list")
    assert (pool["name"], pool["capacity"], pool["waiting"]) == ("gpu", 3, 1)
    assert terminal.json("pools", "set", "gpu", "--capacity", "5")["capacity"] == 5
    assert terminal.run("pools", "set", "cpu", "--capacity", "5").returncode == 3
    assert terminal.run("pools", "set", "gpu").returncode == 2


def test_serve_warns_of_a_missing_public_url_where_other_machines_call(terminal: Terminal) -> None:
    with terminal.process("serve", "--port", "0", "--host", "0.0.0.0") as server:
        assert "RETOMA_PUBLIC_URL is not set" in server.says("server ready")
