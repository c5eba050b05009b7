"""A frozen worker under `retoma dev`: every interface reports the same, and `resume` says what is missing."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx2

from tests.cli.terminal import FILM, Process, Terminal, wait_until
from tests.cli.test_dev import worker_of
from tests.cli.test_serve import address_of
from tests.wait_timeout import WAIT_TIMEOUT


def test_every_interface_reports_that_the_run_of_a_frozen_worker_is_stuck(terminal: Terminal) -> None:
    (terminal.folder / "film.py").write_text(FILM.replace("retry=Retry(0)", "retry=Retry(0), stuck_after=1"))
    with terminal.process("dev", "film.py", "--port", "0", RETOMA_HEARTBEAT_TIMEOUT_SECONDS="1") as dev:
        worker = worker_of(dev.wait_for_output("worker_ready"))
        with signed_in(terminal, dev) as server:
            run = terminal.start("-i", "title=slow")
            terminal.wait_for_images(2)
            os.kill(worker, signal.SIGSTOP)
            try:
                wait_until(lambda: get(server, f"/api/v1/runs/{run}")["state"] == "stuck")
                assert [each["id"] for each in get(server, "/api/v1/runs?state=stuck")["runs"]] == [run]
                (stuck,) = get(server, "/api/v1/stuck")["stuck"]
                assert (stuck["run"], stuck["cause"]) == (run, "no_worker")
                assert terminal.state(run) == "stuck"
                assert [each["run"] for each in terminal.json("runs", "stuck")] == [run]
                page = server.get(f"/runs/{run}").text
                assert "no running worker serves queue 'image'" in unescape(page)
                measured = server.get("/metrics").text
                assert 'retoma_runs{pipeline="film",state="stuck"} 1' in measured
                assert "retoma_workers 0" in measured

                resumed = server.post(f"/api/v1/runs/{run}/resume")
                assert (resumed.status_code, resumed.json()["state"]) == (200, "running")
                assert "no running worker serves queue 'image'" in resumed.json()["note"]
                output = terminal.run("runs", "resume", run)
                assert output.returncode == 0
                assert "no running worker serves queue 'image'" in output.stderr
            finally:
                os.kill(worker, signal.SIGCONT)
            Path(terminal.folder / "go").touch()
            wait_until(lambda: get(server, f"/api/v1/runs/{run}")["state"] == "completed")
            os.kill(dev.pid, signal.SIGINT)
            assert dev.wait_for_exit() == 0


@contextmanager
def signed_in(terminal: Terminal, dev: Process) -> Iterator[httpx2.Client]:
    """Provide a client with the key of `retoma dev`, and for pages the session of its printed address."""
    address = address_of(dev)
    printed = re.search(rf"{address}/\?token=\S+", dev.output.read_text())
    assert printed is not None
    key = (terminal.folder / "home" / "dev-key").read_text()
    with httpx2.Client(
        base_url=address, headers={"X-API-Key": key}, follow_redirects=True, timeout=WAIT_TIMEOUT
    ) as client:
        assert client.get(printed[0]).status_code == 200
        yield client


def get(server: httpx2.Client, path: str) -> Any:
    return server.get(path).json()
