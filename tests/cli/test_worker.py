"""`retoma worker`: real processes that drain, die, and take over jobs of others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import retoma
from tests.cli.terminal import Terminal, wait_until
from tests.wait_timeout import WAIT_TIMEOUT


def test_a_stopping_worker_lets_its_jobs_finish(terminal: Terminal) -> None:
    with terminal.worker() as worker:
        run = terminal.start("-i", "title=slow", "-i", "scenes=1")
        terminal.wait_for_images()
        os.kill(worker.pid, signal.SIGTERM)
        worker.wait_for_output("stopping")
        (terminal.folder / "go").touch()
        assert worker.wait_for_exit() == 0
    facts = terminal.json("runs", "show", run)
    assert facts["steps"][1]["jobs"] == {"succeeded": 1}
    assert facts["steps"][2]["jobs"] == {"ready": 1}


def test_a_drained_worker_finishes_its_jobs_and_exits(terminal: Terminal) -> None:
    # Its jobs are not returned after the drain time, which limits a stop signal only.
    with terminal.worker(RETOMA_DRAIN_SECONDS="0.1") as worker:
        run = terminal.start("-i", "title=slow", "-i", "scenes=1")
        terminal.wait_for_images()
        (listed,) = terminal.json("workers")
        (draining,) = terminal.json("workers", "drain", str(listed["id"]), "--by", "ana")
        assert draining["drain_requested_by"] == "ana"
        worker.wait_for_output("worker_draining")
        (terminal.folder / "go").touch()
        assert worker.wait_for_exit() == 0
    assert terminal.json("workers") == []
    facts = terminal.json("runs", "show", run)
    assert facts["steps"][1]["jobs"] == {"succeeded": 1}
    assert facts["steps"][2]["jobs"] == {"ready": 1}
    assert terminal.run("workers", "drain", str(listed["id"])).returncode == 3


def test_a_health_check_finds_the_worker_of_its_machine(terminal: Terminal) -> None:
    missing = terminal.run("workers", "check")
    assert (missing.returncode, "sends heartbeats" in missing.stderr) == (3, True)
    with terminal.worker(RETOMA_HEARTBEAT_TIMEOUT_SECONDS="2") as worker:
        assert terminal.run("workers", "check").returncode == 0
        assert terminal.run("workers", "check", "--name", "another").returncode == 3
        worker.child.kill()
        worker.wait_for_exit()
        wait_until(lambda: terminal.run("workers", "check").returncode == 3)


def test_a_second_stop_signal_releases_the_jobs_at_once(terminal: Terminal) -> None:
    with terminal.worker() as worker:
        run = terminal.start("-i", "title=slow", "-i", "scenes=1")
        terminal.wait_for_images()
        os.kill(worker.pid, signal.SIGINT)
        worker.wait_for_output("stopping")
        os.kill(worker.pid, signal.SIGINT)
        assert worker.wait_for_exit() == 0
    assert terminal.json("runs", "show", run)["steps"][1]["jobs"] == {"ready": 1}


def test_a_job_of_a_killed_worker_is_run_by_another(terminal: Terminal) -> None:
    terminal.variables["RETOMA_HEARTBEAT_TIMEOUT_SECONDS"] = "3"
    with terminal.worker() as victim:
        run = terminal.start("-i", "title=slow", "-i", "scenes=2")
        terminal.wait_for_images(2)
        os.kill(victim.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        victim.wait_for_exit()
    (terminal.folder / "go").touch()
    with terminal.worker() as heir:
        heir.wait_for_output("worker_declared_dead")
        waited = terminal.out("runs", "events", run, "--follow", "-o", "jsonl")
    assert time.monotonic() - killed_at < WAIT_TIMEOUT
    began = terminal.wait_for_images(4)
    assert [pid for pid, _ in began] == [str(victim.pid)] * 2 + [str(heir.pid)] * 2
    assert sorted(line for _, line in began) == ["slow 0", "slow 0", "slow 1", "slow 1"]
    events = [json.loads(line) for line in waited.splitlines()]
    assert events[-1]["data"] == {"state": "completed"}
    assert {event["data"]["code"] for event in events if event["kind"] == "retry"} == {"WORKER_DIED"}


def test_a_worker_does_not_outlive_its_parent_process(terminal: Terminal) -> None:
    with terminal.worker("--until-stdin-closes") as worker:
        assert worker.child.stdin is not None
        worker.child.stdin.close()
        assert worker.wait_for_exit() == 0


def test_each_log_line_names_its_attempt(terminal: Terminal) -> None:
    with terminal.worker(RETOMA_LOG="json") as worker:
        run = terminal.run("start", "film", "film.py", "-i", "title=bad", "--wait").stdout.split()[0]
        output = worker.wait_for_output("no [bold]paint")
    lines = [json.loads(line) for line in output.splitlines()]
    (own,) = [line for line in lines if line["message"] == "writing bad"]
    assert (own["run"], own["step"], own["attempt"], own["level"]) == (run, "lines", 1, "warning")
    assert (own["logger"], own["event"]) == ("film", "log")
    failed = next(line for line in lines if line["event"] == "job_failed")
    assert (failed["run"], failed["step"], failed["item"][:3], failed["code"]) == (run, "image", "bad", "ERROR")


def test_a_log_line_for_people_is_one_line_without_control_characters(terminal: Terminal) -> None:
    with terminal.worker() as worker:
        run = terminal.run("start", "film", "film.py", "-i", "title=bad", "-i", "scenes=1", "--wait").stdout.split()[0]
        output = worker.wait_for_output("no [bold]paint")
    (line,) = [line for line in output.splitlines() if " error " in line]
    assert (
        f'job_failed  an attempt failed, and no worker will retry it  tenant=default run={run} step=image item="bad 0"'
        in line
    )
    assert line.endswith("[retoma.worker.attempt_log]")
    assert r"\x1b[2J" in line
    assert "\x1b" not in output


def test_a_queue_without_any_step_is_warned_about(terminal: Terminal) -> None:
    with terminal.worker("-q", "imgae") as worker:
        assert "no step of this application uses queue 'imgae'; did you mean 'image'?" in worker.wait_for_output(
            "imgae"
        )


def test_garbage_collection_skips_objects_created_at_startup() -> None:
    script = (
        "import gc\n"
        "from retoma.cli.worker import run_process\n"
        "async def told():\n"
        "    print(gc.get_freeze_count() > 10_000, gc.get_threshold()[0])\n"
        "run_process(told())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=WAIT_TIMEOUT, check=True
    )
    assert ended.stdout.split() == ["True", "50000"]


def test_a_worker_without_a_host_that_the_server_allows_refuses_to_start(terminal: Terminal) -> None:
    refused = [{}, {"RETOMA_ALLOW_HOSTS": "10.20.0.0/16"}, {"RETOMA_ALLOW_HOSTS": "n8n.internal,10.20.0.0/24"}]
    with terminal.process("serve", "--port", "0", RETOMA_ALLOW_HOSTS="n8n.internal,10.20.0.0/16") as server:
        server.wait_for_output("server_ready")
        for value, host in zip(refused, ["n8n.internal", "n8n.internal", "10.20.0.0/16"], strict=True):
            with terminal.process("worker", "film.py", **value) as worker:
                assert worker.wait_for_exit() == 2
                output = worker.output.read_text()
                assert all(part in output for part in (host, "RETOMA_ALLOW_HOSTS", "server", "worker"))
        with terminal.worker(RETOMA_ALLOW_HOSTS="n8n.internal,10.0.0.0/8"):
            pass
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait_for_exit() == 0
    with terminal.worker():
        pass


def test_a_worker_must_allow_the_hosts_of_every_running_server(terminal: Terminal) -> None:
    with (
        terminal.process("serve", "--port", "0", RETOMA_ALLOW_HOSTS="n8n.internal") as first,
        terminal.process("serve", "--port", "0", RETOMA_ALLOW_HOSTS="hooks.internal") as second,
    ):
        for server in (first, second):
            server.wait_for_output("server_ready")
        for allowed, lacking in (("n8n.internal", "hooks.internal"), ("hooks.internal", "n8n.internal")):
            with terminal.process("worker", "film.py", RETOMA_ALLOW_HOSTS=allowed) as worker:
                assert worker.wait_for_exit() == 2
                assert f"RETOMA_ALLOW_HOSTS of this worker does not include {lacking}" in worker.output.read_text()


def test_a_worker_logs_how_its_hosts_differ_from_a_server_that_starts_later(terminal: Terminal) -> None:
    variables = {"RETOMA_ALLOW_HOSTS": "n8n.internal", "RETOMA_PUBLIC_URL": "https://retoma.example.com"}
    with terminal.worker() as worker, terminal.process("serve", "--port", "0", **variables):
        worker.wait_for_output("RETOMA_ALLOW_HOSTS of this worker does not include n8n.internal")
        worker.wait_for_output(
            "RETOMA_PUBLIC_URL of this worker is not set, but that of the server is https://retoma.example.com"
        )


def test_a_server_and_doctor_name_the_workers_that_lack_its_hosts(terminal: Terminal) -> None:
    lacking = "RETOMA_ALLOW_HOSTS of worker 'alone' does not include n8n.internal"
    with (
        terminal.worker("--name", "alone"),
        terminal.worker("--name", "set-up", RETOMA_ALLOW_HOSTS="n8n.internal"),
        terminal.process("serve", "--port", "0", RETOMA_ALLOW_HOSTS="n8n.internal") as server,
    ):
        server.wait_for_output(lacking)
        found = json.loads(terminal.run("doctor", "-o", "json").stdout)
    (outcomes,) = [finding["message"] for finding in found if finding["subject"] == "RETOMA_ALLOW_HOSTS"]
    assert lacking in outcomes
    assert "set-up" not in server.output.read_text()


ISOLATED = """
import retoma
from retoma import Pipeline, Retry

isolated = Pipeline("isolated", retry=Retry(0))


@isolated.step(isolation="process")
def imported() -> str:
    return retoma.__file__
"""


def test_an_isolated_step_uses_the_retoma_installation_of_its_worker(terminal: Terminal) -> None:
    package = terminal.folder / "elsewhere" / "retoma"
    package.parent.mkdir()
    package.symlink_to(Path(retoma.__file__).parent)
    (terminal.folder / "isolated.py").write_text(ISOLATED)
    run = terminal.out("start", "isolated", "isolated.py").strip()
    with terminal.process("worker", "isolated.py", PYTHONPATH=str(package.parent)):
        terminal.out("runs", "events", run, "--follow")
    (step,) = terminal.json("runs", "show", run)["steps"]
    assert terminal.json("runs", "show", run)["results"] == {"imported": str(package / "__init__.py")}, step
