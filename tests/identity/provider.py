"""A real OpenID provider, started for the tests of a module, and the browser of somebody who logs in there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2

from tests.ports import free_port
from tests.system_packages import require

VERSION = "9.13.3"
SECONDS_TO_INSTALL = 300
SECONDS_TO_START = 60
CLIENT_ID = "retoma: tests"  # with characters that the header of a client must encode
CLIENT_SECRET = "secret of the tests: 100% + more"
RETOMA = "http://retoma.example"
CALLBACK = f"{RETOMA}/login/oidc/callback"


class Provider:
    """`accounts` holds the claims of each subject. Changes count from the next login on."""

    def __init__(self, issuer: str, accounts: Path) -> None:
        self.issuer = issuer
        self._accounts = accounts

    def set_account(self, subject: str, **claims: Any) -> None:
        known = json.loads(self._accounts.read_text())
        self._accounts.write_text(json.dumps(known | {subject: claims}))

    def log_in(self, url: str, subject: str) -> str:
        """Log in at the address where Retoma sent the browser, and return where the provider sends it back to."""
        with httpx2.Client(timeout=30) as browser:
            answer = browser.get(url)
            while True:
                while answer.is_redirect:
                    target = str(urljoin(str(answer.url), answer.headers["location"]))
                    if not target.startswith(self.issuer):
                        return target
                    answer = browser.get(target)
                assert answer.status_code == 200, answer.text[:1000]
                answer = browser.post(_read_form_address(answer), data=_fill_form(answer, subject))


def _read_form_address(answer: httpx2.Response) -> str:
    found = re.search(r'<form[^>]* action="([^"]+)"', answer.text)
    assert found, answer.text
    return urljoin(str(answer.url), str(found[1]))


def _fill_form(answer: httpx2.Response, subject: str) -> dict[str, str]:
    prompt = "login" if 'name="login"' in answer.text else "consent"
    return {"prompt": prompt, "login": subject, "password": "any"} if prompt == "login" else {"prompt": prompt}


@contextmanager
def run_provider(folder: Path) -> Iterator[Provider]:
    """Run the provider. If it cannot be installed, skip the test, or fail it in CI."""
    node = shutil.which("node") or ""
    require(bool(node), "Node.js, which runs the provider (apt-get install nodejs)")
    accounts = folder / "accounts.json"
    accounts.write_text("{}")
    port = free_port()
    environment = os.environ | {
        "MODULES": str(_install_provider()),
        "ACCOUNTS": str(accounts),
        "PORT": str(port),
        "REDIRECT_URI": CALLBACK,
        "CLIENT_SECRET": CLIENT_SECRET,
        "NODE_ENV": "test",
    }
    with (folder / "provider.log").open("w") as log:
        script = Path(__file__).with_name("provider.mjs")
        process = subprocess.Popen([node, str(script)], env=environment, stdout=log, stderr=log)
        try:
            issuer = f"http://127.0.0.1:{port}"
            _wait_until_ready(issuer, process, folder / "provider.log")
            yield Provider(issuer, accounts)
        finally:
            process.terminate()
            process.wait(timeout=30)


def _install_provider() -> Path:
    """Install the provider by npm into a folder that later runs use again, and return it."""
    npm = shutil.which("npm") or ""
    require(bool(npm), "npm, which installs the provider (apt-get install npm)")
    folder = Path(tempfile.gettempdir()) / f"retoma-oidc-provider-{VERSION}"
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": {"oidc-provider": VERSION}}))
        try:
            subprocess.run(
                [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(folder)],
                cwd=folder,
                check=True,
                capture_output=True,
                timeout=SECONDS_TO_INSTALL,
            )
        except subprocess.SubprocessError as error:
            output = (getattr(error, "stderr", b"") or b"").decode(errors="replace")[-400:]
            require(False, f"oidc-provider {VERSION} from npm, which failed with {error}: {output}")
        (folder / "installed").touch()
    return folder


def _wait_until_ready(issuer: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-2_000:]
        try:
            if httpx2.get(f"{issuer}/.well-known/openid-configuration").status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the provider did not start: {log.read_text()[-2_000:]}")
