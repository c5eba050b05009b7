"""`retoma connections ...`: secrets come from a prompt, stdin or a file, and are never printed."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from retoma import Settings
from retoma.checks import Finding
from retoma.cli.connection_checks import check_connections
from retoma.encryption import generate_key
from tests.cli.terminal import WAIT_TIMEOUT, Terminal
from tests.conftest import OpenSandbox
from tests.studio import STUDIO
from tests.webhooks.builders import one_step

CANARY = "CANARY-5d1e7a90"
APP = """
from retoma import App, Pipeline
from tests.studio import STUDIO
from tests.webhooks.builders import one_step

film = Pipeline("film")


@film.step
def cut() -> str:
    return "cut"


app = App("films", pipelines=[film], connections=[STUDIO])
"""


@pytest.fixture
def shell(terminal: Terminal) -> Terminal:
    """A shell with an application that declares the service `studio`, and a key."""
    (terminal.folder / "films.py").write_text(APP)
    terminal.variables |= {
        "RETOMA_APP": "films.py",
        "RETOMA_CONNECTIONS_KEY": generate_key(),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    return terminal


def enter(shell: Terminal, key: str, *options: str) -> Any:
    (entered,) = json.loads(shell.out("connections", "set", "studio", "-o", "json", *options, stdin=f"{key}\n"))
    return entered


def test_a_connection_is_entered_on_stdin_and_listed_without_its_secret(shell: Terminal) -> None:
    assert shell.run("connections", "list").stderr.startswith("no connections; add one")
    entered = enter(shell, CANARY, "--tenant", "blog", "-f", "voice=Rosa")
    assert (entered["tenant"], entered["settings"], entered["secret_fields"]) == (
        "blog",
        {"voice": "Rosa"},
        ["api_key"],
    )
    for output in ("table", "json", "csv"):
        assert CANARY not in shell.out("connections", "list", "-o", output)


def test_a_secret_is_read_from_a_file_and_refused_as_an_argument(shell: Terminal) -> None:
    (shell.folder / "key").write_text(f"{CANARY}\n")
    shell.out("connections", "set", "studio", "--file", f"api_key={shell.folder / 'key'}")
    assert shell.run("connections", "test", "studio").returncode == 0
    refused = shell.run("connections", "set", "studio", "-f", f"api_key={CANARY}")
    assert refused.returncode == 2
    assert "api_key is secret" in refused.stderr
    assert CANARY not in refused.stderr


def test_a_field_changes_without_the_secret(shell: Terminal) -> None:
    enter(shell, "right")
    (changed,) = json.loads(shell.out("connections", "set", "studio", "-f", "voice=Rosa", "-o", "json"))
    assert (changed["settings"], changed["secret_fields"]) == ({"voice": "Rosa"}, ["api_key"])


def test_a_test_exits_with_1_and_says_why(shell: Terminal) -> None:
    enter(shell, f"wrong-{CANARY}")
    failed = shell.run("connections", "test", "studio")
    assert failed.returncode == 1
    assert "was rejected: enter another one" in failed.stderr
    assert CANARY not in failed.stderr


def test_a_rotation_makes_the_old_key_unnecessary(shell: Terminal) -> None:
    enter(shell, "right")
    old, new = shell.variables["RETOMA_CONNECTIONS_KEY"], generate_key()
    shell.variables["RETOMA_CONNECTIONS_KEY"] = new
    assert shell.run("connections", "test", "studio").returncode == 1
    shell.variables["RETOMA_CONNECTIONS_KEY"] = f"{new},{old}"
    assert "1 connection encrypted" in shell.out("connections", "rotate")
    shell.variables["RETOMA_CONNECTIONS_KEY"] = new
    assert shell.run("connections", "test", "studio").returncode == 0


def test_a_deleted_connection_is_gone(shell: Terminal) -> None:
    enter(shell, "right")
    shell.out("connections", "delete", "studio")
    assert shell.run("connections", "delete", "studio").returncode == 3


def test_without_a_key_the_message_says_what_to_set(shell: Terminal) -> None:
    del shell.variables["RETOMA_CONNECTIONS_KEY"]
    failed = shell.run("connections", "set", "studio", stdin="key\n")
    assert failed.returncode == 1
    assert "openssl rand -base64 32" in failed.stderr


def test_an_unknown_service_is_not_found(shell: Terminal) -> None:
    missing = shell.run("connections", "set", "studoi", stdin="key\n")
    assert (missing.returncode, "known: studio" in missing.stderr) == (3, True)


def test_a_terminal_is_asked_and_does_not_show_what_is_typed(shell: Terminal) -> None:
    mine, theirs = pty.openpty()
    command = [sys.executable, "-m", "retoma", "connections", "set", "studio"]
    process = subprocess.Popen(
        command,
        cwd=shell.folder,
        env={**os.environ, **shell.variables},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,  # without a terminal of its own, it asks on this one
    )
    os.close(theirs)
    shown = b""
    while b"API key" not in shown:
        shown += os.read(mine, 1000)
    os.write(mine, f"{CANARY}\n".encode())
    while True:
        try:
            shown += os.read(mine, 1000)
        except OSError:  # the process has ended
            break
    assert process.wait(WAIT_TIMEOUT) == 0
    assert CANARY.encode() not in shown


def test_doctor_lists_what_is_missing_and_how_to_supply_it(shell: Terminal) -> None:
    def find() -> dict[str, str]:
        found = json.loads(shell.run("doctor", "-o", "json").stdout)
        return next(each for each in found if each["subject"] == "connections of films")

    assert find()["message"] == "missing: studio (STUDIO_KEY)"
    assert "retoma connections set SERVICE" in find()["advice"]
    shell.variables["STUDIO_KEY"] = "set"
    assert find()["message"].startswith("each service")
    del shell.variables["STUDIO_KEY"]
    enter(shell, "right", "--tenant", "blog")
    assert find()["message"] == "only for the tenant blog: studio (STUDIO_KEY)"
    enter(shell, "right")
    assert find()["message"].startswith("each service")


@pytest.mark.parametrize(("is_required", "level"), [(False, "ok"), (True, "warning")])
async def test_doctor_warns_if_the_application_cannot_do_without_what_is_missing(
    is_required: bool, level: str, open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STUDIO_KEY", raising=False)
    studio = replace(STUDIO, is_required=is_required)
    async with open_sandbox(one_step(), connections=[studio]) as sandbox:

        async def find() -> Finding:
            found = await check_connections(sandbox.database, Settings(_env_file=None), [sandbox.app])
            return next(each for each in found if each.subject == "connections of test")

        assert (await find()).level == level
        for tenant in "gfedcba":
            await sandbox.client.connections.set("studio", {"api_key": "key"}, tenant=tenant)
        partial = await find()
        assert partial.level == level
        assert partial.message == "only for the tenants a, b, c, d, e and 2 more: studio (STUDIO_KEY)"
        await sandbox.client.connections.set("studio", {"api_key": "key"})
        assert (await find()).level == "ok"


def test_doctor_reports_a_key_that_is_missing_or_old(shell: Terminal) -> None:
    enter(shell, "right")
    old, new = shell.variables["RETOMA_CONNECTIONS_KEY"], generate_key()

    def find() -> list[tuple[str, str]]:
        found = json.loads(shell.run("doctor", "-o", "json").stdout)
        return [(each["level"], each["advice"]) for each in found if each["subject"] == "connections"]

    assert find() == []
    shell.variables["RETOMA_CONNECTIONS_KEY"] = f"{new},{old}"
    assert find() == [("warning", "retoma connections rotate")]
    shell.variables["RETOMA_CONNECTIONS_KEY"] = new
    assert [level for level, _ in find()] == ["problem"]
