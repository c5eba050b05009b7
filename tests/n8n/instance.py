"""A real n8n, started for the tests of a module, and driven as its editor drives it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.ports import free_port

ASKED_BY = "RETOMA_TEST_N8N"
FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "n8n"
VERSION = "2.8.4"
SECONDS_TO_INSTALL = 480  # less than the time limit of a test, so a slow installation skips it with its reason
SECONDS_TO_START = 300
SECONDS = 120
SECRET = "whsec_c2VjcmV0LW9mLXRlc3RzLW9ubHktMDEyMzQ1Njc4OQ=="
CREDENTIAL = "Retoma (X-API-Key)"
# n8n takes the spreadsheet library from a server of its own; the workflows need none, so npm's registry is enough.
PACKAGE = {"private": True, "dependencies": {"n8n": VERSION}, "overrides": {"xlsx": "0.18.5"}}
OWNER = {"email": "owner@example.com", "firstName": "O", "lastName": "W", "password": "Password-1234"}


def program() -> str:
    """Return where n8n is, after installing it if that is asked for, or skip the test."""
    requested = os.environ.get(ASKED_BY)
    found = _install_n8n() if requested == "1" else requested or shutil.which("n8n")
    if not found:
        pytest.skip(
            f"n8n is not installed: put it on the PATH, or set {ASKED_BY} to its program or, to install it, to 1"
        )
    return found


def _install_n8n() -> str:
    """Install n8n by npm into a folder that later runs use again, and return its program, or skip the test."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    folder = Path(tempfile.gettempdir()) / f"retoma-n8n-{VERSION}"
    program = folder / "node_modules" / ".bin" / "n8n"
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(json.dumps(PACKAGE))
        options = ["--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(folder)]
        try:
            subprocess.run(
                [npm, "install", *options],
                cwd=folder,
                check=True,
                capture_output=True,
                timeout=SECONDS_TO_INSTALL,
            )
        except subprocess.SubprocessError as error:
            output = (getattr(error, "stderr", b"") or b"").decode(errors="replace")[-400:]
            pytest.skip(f"npm could not install n8n {VERSION}: {error} {output}")
        (folder / "installed").touch()
    return str(program)


class N8n:
    def __init__(self, address: str, http: httpx2.Client) -> None:
        self.address = address
        self._http = http

    def call(self, method: str, path: str, **options: Any) -> Any:
        answer = self._http.request(method, path, **options)
        assert answer.status_code < 300, (path, answer.status_code, answer.text[:500])
        return answer.json()["data"]

    def trigger(self, path: str, **options: Any) -> httpx2.Response:
        """Send to a webhook, as anyone may."""
        return httpx2.post(f"{self.address}{path}", timeout=60, **options)

    def save_key(self, key: str) -> str:
        """Make the credential that the workflows name, and return its id."""
        data = {"name": "X-API-Key", "value": key}
        made = self.call("POST", "/rest/credentials", json={"name": CREDENTIAL, "type": "httpHeaderAuth", "data": data})
        return str(made["id"])

    def publish(self, name: str, retoma: str, credential: str) -> str:
        """Import a workflow of deploy/n8n with Retoma's address in it, switch it on, and return its id."""
        text = (FOLDER / f"{name}.json").read_text(encoding="utf-8").replace("https://retoma.example.com", retoma)
        values = json.loads(text)
        del values["id"]  # as the editor does
        for node in values["nodes"]:
            if "credentials" in node:
                node["credentials"]["httpHeaderAuth"]["id"] = credential
        made = self.call("POST", "/rest/workflows", json=values | {"active": False})
        shown = self.call("GET", f"/rest/workflows/{made['id']}")
        self.call("POST", f"/rest/workflows/{made['id']}/activate", json={"versionId": shown["versionId"]})
        return str(made["id"])

    def executions(self, workflow: str) -> list[dict[str, Any]]:
        found = self.call("GET", "/rest/executions", params={"filter": json.dumps({"workflowId": workflow})})
        return list(found["results"])

    def data(self, execution: str) -> str:
        """All that an execution has kept, as text."""
        return str(self.call("GET", f"/rest/executions/{execution}")["data"])


@contextmanager
def run_n8n(folder: Path, port: int | None = None, **variables: str) -> Iterator[N8n]:
    """Run n8n with its data in `folder`. It may have run there before, and then keeps its workflows."""
    port = port or free_port()
    address = f"http://127.0.0.1:{port}"
    environment = _environment(folder) | {
        "N8N_PORT": str(port),
        "N8N_LISTEN_ADDRESS": "127.0.0.1",
        "N8N_RUNNERS_BROKER_PORT": str(free_port()),
        "WEBHOOK_URL": f"{address}/",
        "N8N_SECURE_COOKIE": "false",
        "N8N_BLOCK_ENV_ACCESS_IN_NODE": "false",
        "NODE_FUNCTION_ALLOW_BUILTIN": "crypto",
        "WEBHOOK_SECRET": SECRET,
        **variables,
    }
    with (folder / "n8n.log").open("w") as log:
        process = subprocess.Popen([program(), "start"], cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            with httpx2.Client(base_url=address, timeout=60) as http:
                _wait_until_ready(http, process, folder / "n8n.log")
                _log_in(http)
                yield N8n(address, http)
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run_command(folder: Path, *command: str) -> str:
    """Run a command of n8n on the data in `folder`, and return what it prints."""
    ended = subprocess.run(
        [program(), *command],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_TO_START,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "N8N_USER_FOLDER": str(folder),
        "N8N_DIAGNOSTICS_ENABLED": "false",
        "N8N_VERSION_NOTIFICATIONS_ENABLED": "false",
        "N8N_TEMPLATES_ENABLED": "false",
        "N8N_PERSONALIZATION_ENABLED": "false",
    }


def _log_in(http: httpx2.Client) -> None:
    """Create the owner, or log in as the owner of an earlier start."""
    if http.post("/rest/owner/setup", json=OWNER).status_code != 200:
        login = {"emailOrLdapLoginId": OWNER["email"], "password": OWNER["password"]}
        answer = http.post("/rest/login", json=login)
        assert answer.status_code == 200, answer.text


def _wait_until_ready(http: httpx2.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-2_000:]
        try:
            if http.get("/healthz/readiness").status_code == 200 and http.get("/rest/settings").status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.5)
    raise AssertionError(f"n8n did not start: {log.read_text()[-2_000:]}")
