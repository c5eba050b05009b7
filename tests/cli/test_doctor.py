"""`retoma doctor`, `db` and `config`: problems of the installation, and its settings."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import chdir
from datetime import timedelta
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

import pytest

from retoma import Pipeline, checks, demo, minutes
from retoma.cli import doctor
from retoma.cli.served_applications import record
from retoma.engine import watchdog
from retoma.store import health, migrate
from retoma.store.database import Database
from retoma.store.embedded import Embedded, attach, choose_programs, run_single_user, server_user
from retoma.store.supervisor import lock
from retoma.testing import fresh_database
from retoma_apps import videos
from tests.cli.terminal import Terminal, wait_until
from tests.conftest import OpenSandbox
from tests.engine.builders import HEARTBEAT_TIMEOUT

NEWEST = migrate.list_migrations()[-1].number


SONG = """
from retoma import Pipeline

app = Pipeline("song")


@app.step
def sung() -> str:
    return "la"
"""


def findings(terminal: Terminal, about: str) -> list[dict[str, Any]]:
    ended = terminal.run("doctor", "-o", "json")
    return [finding for finding in json.loads(ended.stdout) if finding["subject"] == about]


def test_everything_is_healthy_if_nothing_waits(terminal: Terminal) -> None:
    with terminal.worker() as worker:
        ended = terminal.run("doctor")
        assert ended.returncode == 0
        assert f"schema {NEWEST}, up to date" in ended.stdout
        assert "external PostgreSQL" in ended.stdout
        assert f":{worker.pid}" in ended.stdout


def uninstall(monkeypatch: pytest.MonkeyPatch, *parts: str) -> None:
    """As if these had not been installed."""

    def found(part: str) -> Distribution:
        if part in parts:
            raise PackageNotFoundError(part)
        return distribution(part)

    monkeypatch.setattr(checks, "distribution", found)


def test_a_missing_package_is_named_with_its_install_command(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    uninstall(monkeypatch, "imageio-ffmpeg", "scikit-learn")
    (media,) = findings(terminal, "extra media")
    clone = Path(checks.__file__).resolve().parents[2]
    assert media == {
        "level": "ok",  # no application needs it
        "subject": "extra media",
        "message": "not installed: imageio-ffmpeg",
        "advice": f"{sys.executable} -m pip install -e '{clone}[media]'",
    }
    (classifier,) = findings(terminal, "extra classifier")
    assert classifier["message"] == "not installed: scikit-learn"


def test_the_pip_command_uses_the_running_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    uninstall(monkeypatch, "imageio-ffmpeg")
    assert checks.check_extra("media").advice.startswith(".venv/bin/python -m pip install -e ")


def test_the_extra_is_installed_from_the_clone_in_its_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(checks.__file__).resolve().parents[2])
    uninstall(monkeypatch, "imageio-ffmpeg")
    assert checks.check_extra("media").advice.endswith(" -m pip install -e '.[media]'")


def test_runs_without_any_worker_are_warned_about(terminal: Terminal) -> None:
    (workers,) = findings(terminal, "workers")
    assert workers["level"] == "ok"
    terminal.start()
    (workers,) = findings(terminal, "workers")
    assert (workers["level"], workers["advice"]) == ("warning", "retoma worker APP")
    assert "no workers are running: 1 run is waiting" in workers["message"]


def test_runs_whose_application_has_no_worker_are_warned_about(terminal: Terminal) -> None:
    (terminal.folder / "song.py").write_text(SONG)
    terminal.start()
    with terminal.process("worker", "song.py") as worker:
        worker.wait_for_output("worker_ready")
        live, lacking = findings(terminal, "workers")
    assert (live["level"], lacking["level"]) == ("ok", "warning")
    assert "no worker serves pipeline 'film', and 1 run is waiting" in lacking["message"]


def test_a_missing_public_url_is_warned_about_if_other_machines_call(terminal: Terminal) -> None:
    assert findings(terminal, "RETOMA_PUBLIC_URL") == []
    for name, value in (("RETOMA_HOST", "0.0.0.0"), ("RETOMA_TRUSTED_PROXIES", "127.0.0.1")):
        terminal.variables[name] = value
        (finding,) = findings(terminal, "RETOMA_PUBLIC_URL")
        assert finding["level"] == "warning"
        del terminal.variables[name]
    terminal.variables["RETOMA_HOST"] = "0.0.0.0"
    terminal.variables["RETOMA_PUBLIC_URL"] = "https://retoma.example.com"
    assert findings(terminal, "RETOMA_PUBLIC_URL") == []


CHECKED = """
from retoma import App, Pipeline
from retoma.checks import Finding

song = Pipeline("song")


@song.step
def sung() -> str:
    return "la"


def check():
    yield Finding("problem", "piano", "out of tune", "call the tuner")


def fail():
    raise OSError("no piano")


app = App("all", includes=[App("song", pipelines=[song], checks=CHECKS)])
"""


@pytest.fixture
def checked_application(terminal: Terminal) -> Path:
    (file := terminal.folder / "song.py").write_text(CHECKED.replace("CHECKS", "check"))
    terminal.variables["RETOMA_APP"] = "song.py"
    return file


@pytest.mark.usefixtures("checked_application")
def test_an_application_brings_its_own_checks(terminal: Terminal) -> None:
    ended = terminal.run("doctor", "-o", "json")
    piano = {"level": "problem", "subject": "piano", "message": "out of tune", "advice": "call the tuner"}
    assert (ended.returncode, piano in json.loads(ended.stdout)) == (1, True)


def test_checks_that_fail_are_reported(terminal: Terminal, checked_application: Path) -> None:
    checked_application.write_text(CHECKED.replace("CHECKS", "fail"))
    (finding,) = findings(terminal, "application")
    assert finding["level"] == "warning"
    assert finding["message"] == "the checks of 'song' failed: OSError: no piano"


def test_an_application_that_cannot_be_imported_is_a_problem(terminal: Terminal, checked_application: Path) -> None:
    checked_application.write_text("import pianos")
    (finding,) = findings(terminal, "application")
    assert (finding["level"], "No module named 'pianos'" in finding["message"]) == ("problem", True)


def test_the_application_of_a_local_server_is_checked(terminal: Terminal, checked_application: Path) -> None:
    del terminal.variables["RETOMA_APP"]
    assert findings(terminal, "piano") == []
    with chdir(terminal.folder), record(terminal.folder / "home", "song.py", demo.app):
        assert findings(terminal, "piano")


def test_running_an_application_warns_about_its_missing_extra(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    uninstall(monkeypatch, "espeakng-loader")
    monkeypatch.delitem(vars(videos), "app", raising=False)
    terminal.variables["RETOMA_APP"] = "retoma_apps.videos"
    (media,) = findings(terminal, "extra media")
    assert (media["level"], media["message"]) == ("warning", "not installed: espeakng-loader")


def test_installed_extras_are_listed_with_their_versions(terminal: Terminal) -> None:
    (media,) = findings(terminal, "extra media")
    assert f"espeakng-loader {version('espeakng-loader')}" in media["message"]
    assert findings(terminal, "extra ocr")


def test_a_queue_with_work_and_without_a_worker_is_a_problem(terminal: Terminal) -> None:
    terminal.start()
    ended = terminal.run("doctor")
    assert ended.returncode == 1
    assert "default: 1 ready, but no running worker serves it" in ended.stdout
    with terminal.worker("-q", "image"):
        (queue,) = findings(terminal, "queue")
    assert (queue["level"], queue["advice"]) == ("problem", "retoma worker APP -q default")


async def test_a_stuck_run_is_reported(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("film", stuck_after=minutes(1))

    @pipeline.step
    def lines() -> str:
        return ""

    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)
        await sandbox.clock.advance(minutes(10))
        await watchdog.check_due_runs(sandbox.database, HEARTBEAT_TIMEOUT)
        found = [finding async for finding in doctor._check_work(sandbox.database, HEARTBEAT_TIMEOUT)]
    assert [(each.level, each.message) for each in found if each.subject == "runs"] == [("warning", "1 run is stuck")]


def test_a_worker_without_heartbeats_is_reported(terminal: Terminal) -> None:
    terminal.variables["RETOMA_HEARTBEAT_TIMEOUT_SECONDS"] = "0.5"
    with terminal.worker() as worker:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait_for_exit()
    while not (silent := findings(terminal, "worker")):
        pass
    assert f":{worker.pid}: last heartbeat" in silent[0]["message"]


async def test_a_long_running_transaction_is_reported(real_time_database: Database) -> None:
    async with real_time_database.connection() as connection, connection.transaction():
        pid = await connection.fetchval("select pg_backend_pid()")
        old = await health.list_old_transactions(real_time_database, timedelta(0))
    assert pid in [row["pid"] for row in old]


def test_an_unreachable_database_is_a_problem(terminal: Terminal) -> None:
    terminal.variables["RETOMA_DATABASE_URL"] = "postgresql://me:secret@127.0.0.1:1/none"
    ended = terminal.run("doctor")
    assert ended.returncode == 1
    assert "cannot connect to the database at 127.0.0.1:1/none" in ended.stdout
    assert "secret" not in ended.stdout
    ended = terminal.run("runs", "list")
    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: cannot connect to the database at 127.0.0.1:1/none")
    assert "Traceback" not in ended.stderr


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Terminal]:
    """A terminal without its own database; its home is reachable by every user."""
    home = Path(tempfile.mkdtemp(prefix="retoma-cli-"))
    home.chmod(0o755)
    yield Terminal(tmp_path, {"RETOMA_HOME": str(home)})
    wait_until(lambda: not (home / "postgres" / "data" / "postmaster.pid").exists())
    shutil.rmtree(home)


def test_the_embedded_database_is_created_on_first_use(embedded: Terminal) -> None:
    before = embedded.run("db", "status")
    assert (before.returncode, f"schema 0 of {NEWEST}" in before.stdout) == (1, True)
    assert "0001_initial_schema" in embedded.out("db", "upgrade")
    assert embedded.json("db", "status")["is_current"] is True
    assert embedded.out("db", "upgrade").endswith("already up to date\n")
    assert "embedded PostgreSQL" in embedded.out("doctor")
    assert ":***@" in embedded.out("db", "url")
    assert "***" not in embedded.out("db", "url", "--with-password")


def test_a_database_url_of_a_superuser_is_warned_about(embedded: Terminal) -> None:
    home = Path(embedded.variables["RETOMA_HOME"])
    with attach(home) as server:
        assert findings(embedded, "role") == []
        make_superuser(server, "owner")
        with attach(home):
            url = server.url.split("@")[1]
            embedded.variables["RETOMA_DATABASE_URL"] = f"postgresql://owner:of-all@{url}"
            (finding,) = findings(embedded, "role")
    assert finding["level"] == "warning"
    assert "Retoma connects as a superuser" in finding["message"]
    assert "RETOMA_DATABASE_URL" in finding["advice"]


def make_superuser(server: Embedded, name: str) -> None:
    """Create the role while the server is stopped, as its own superuser has no password."""
    held = server.folder / "supervisor.lock"
    os.kill(int(held.read_text()), signal.SIGTERM)
    supervising = lock(held, fcntl.LOCK_EX)
    assert supervising is not None
    user = server_user(server.data)
    statement = f"create role {name} login superuser password 'of-all'"
    run_single_user(choose_programs(user), server.data, user, supervising, statement)
    os.close(supervising)


@pytest.fixture
async def unmigrated_terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    """On a database without our schema."""
    async with fresh_database() as database:
        async with database.connection() as connection:
            await connection.execute("drop schema retoma cascade")
        yield Terminal(tmp_path, {"RETOMA_DATABASE_URL": database.url})


def test_an_external_database_is_upgraded_only_on_request(unmigrated_terminal: Terminal) -> None:
    refused = unmigrated_terminal.run("runs", "list")
    assert refused.returncode == 1
    assert refused.stderr == "Error: the database does not have Retoma's tables yet: run `retoma db upgrade`\n"
    assert findings(unmigrated_terminal, "schema")[0]["level"] == "problem"
    unmigrated_terminal.out("db", "upgrade")
    assert unmigrated_terminal.json("runs", "list") == []


def test_settings_are_shown_with_their_source_and_without_secrets(terminal: Terminal) -> None:
    (terminal.folder / ".env").write_text("RETOMA_HEARTBEAT_TIMEOUT_SECONDS=7\nRETOMA_DRAIN_SECONDS=1\n")
    (terminal.folder / "retoma.toml").write_text('app = "film.py"\nheartbeat_timeout_seconds = 8\n')
    terminal.variables |= {"RETOMA_DRAIN_SECONDS": "2", "RETOMA_DATABASE_URL": "postgresql://me:hush-hush@db/work"}
    terminal.variables |= {"RETOMA_WEBHOOK_SECRET": "hush-hush", "RETOMA_DEV_NAME": "Ana"}
    printed = terminal.out("--home", "elsewhere", "config", "show", "-o", "json")
    assert "hush-hush" not in printed
    shown = {row["setting"]: (row["value"], row["from"]) for row in json.loads(printed)}
    expected = {
        "RETOMA_HOME": ("elsewhere", "flag"),
        "RETOMA_DATABASE_URL": ("postgresql://me:***@db/work", "environment"),
        "RETOMA_EMBEDDED_PORT": (None, "default"),
        "RETOMA_APP": ("film.py", "retoma.toml"),
        "RETOMA_HEARTBEAT_TIMEOUT_SECONDS": (7.0, ".env"),
        "RETOMA_DRAIN_SECONDS": (2.0, "environment"),
    }
    assert {name: shown[name] for name in expected} == expected
    others = {name: origin for name, (_, origin) in shown.items() if name not in expected}
    assert {name for name, origin in others.items() if origin != "default"} == {
        "RETOMA_WEBHOOK_SECRET",
        "RETOMA_DEV_NAME",
    }


def test_an_invalid_setting_is_reported_in_one_sentence(terminal: Terminal) -> None:
    terminal.variables["RETOMA_HEARTBEAT_TIMEOUT_SECONDS"] = "soon"
    ended = terminal.run("runs", "list")
    assert ended.returncode == 2
    assert "heartbeat_timeout_seconds: Input should be a valid number" in ended.stderr
    del terminal.variables["RETOMA_HEARTBEAT_TIMEOUT_SECONDS"]
    (terminal.folder / "retoma.toml").write_text("app =")
    assert "cannot parse retoma.toml" in terminal.run("config", "show").stderr
