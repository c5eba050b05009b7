"""A worker that is frozen, under `retoma dev`: every surface sees the same, and `resume` says what is missing."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import httpx2

from tests.cli.terminal import FILM, Terminal, until
from tests.cli.test_dev import worker_of
from tests.cli.test_serving import address_of
from tests.patience import PATIENCE


def test_every_surface_says_that_the_run_of_a_frozen_worker_is_stuck(terminal: Terminal) -> None:
    (terminal.folder / "film.py").write_text(FILM.replace("retry=Retry(0)", "retry=Retry(0), stuck_after=1"))
    with terminal.process("dev", "film.py", "--port", "0", RETOMA_SILENCE_SECONDS="1") as dev:
        worker = worker_of(dev.says("worker ready"))
        address = address_of(dev)
        run = terminal.start("-i", "title=slow")
        terminal.began(2)
        os.kill(worker, signal.SIGSTOP)
        try:
            until(lambda: get(address, f"/api/v1/runs/{run}")["state"] == "stuck")
            assert [each["id"] for each in get(address, "/api/v1/runs?state=stuck")["runs"]] == [run]
            (stuck,) = get(address, "/api/v1/stuck")["stuck"]
            assert (stuck["run"], stuck["cause"]) == (run, "no_worker")
            assert terminal.state(run) == "stuck"
            assert [each["run"] for each in terminal.json("runs", "stuck")] == [run]
            page = httpx2.get(f"{address}/runs/{run}", timeout=PATIENCE).text
            assert "no live worker serves queue image" in page
            measured = httpx2.get(f"{address}/metrics", timeout=PATIENCE).text
            assert 'retoma_runs{pipeline="film",state="stuck"} 1' in measured
            assert "retoma_workers 0" in measured

            resumed = httpx2.post(f"{address}/api/v1/runs/{run}/resume", timeout=PATIENCE)
            assert (resumed.status_code, resumed.json()["state"]) == (200, "running")
            assert "no live worker serves queue 'image'" in resumed.json()["note"]
            said = terminal.run("runs", "resume", run)
            assert said.returncode == 0
            assert "no live worker serves queue 'image'" in said.stderr
        finally:
            os.kill(worker, signal.SIGCONT)
        Path(terminal.folder / "go").touch()
        until(lambda: get(address, f"/api/v1/runs/{run}")["state"] == "completed")
        os.kill(dev.pid, signal.SIGINT)
        assert dev.ended() == 0


def get(address: str, path: str) -> Any:
    return httpx2.get(f"{address}{path}", timeout=PATIENCE).json()
