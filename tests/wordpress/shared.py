"""Attach a process of tests to the WordPress that all processes of the session share."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.system_packages import require
from tests.wordpress.programs import PACKAGES, are_installed
from tests.wordpress.site import Sites

ROOT = Path(__file__).resolve().parents[2]
ATTEMPTS_TO_START = 2


@contextmanager
def attach_sites(factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """Yield the sites, which the first process to need them starts and which end after the last one is done."""
    require(are_installed(), f"WordPress and what runs it; on Debian: apt-get install {PACKAGES}")
    folder = _get_session_folder(factory) / "wordpress"
    folder.mkdir(exist_ok=True)
    with (folder / "users").open("a") as users:
        # Waits for a supervisor that is stopping: it removes ready.json before it releases its lock.
        fcntl.flock(users, fcntl.LOCK_SH)
        yield _start_once(folder)


def _get_session_folder(factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all processes of this session have in common: under xdist, each has its own below it."""
    own = factory.getbasetemp()
    return own.parent if own.name.startswith("popen-") else own


def _start_once(folder: Path) -> Sites:
    ready, log = folder / "ready.json", folder / "supervisor.log"
    with (folder / "start").open("a") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if not ready.exists() and not (folder / "failed").exists():
            _start(folder, log)
    if not ready.exists():
        pytest.fail(f"WordPress did not start:\n{log.read_text()}")
    return Sites.from_json(ready.read_text())


def _start(folder: Path, log: Path) -> None:
    """Return when the sites are ready. If they are not twice, note it, so that no other process tries again."""
    command = [sys.executable, "-m", "tests.wordpress.supervisor", str(folder)]
    for _ in range(ATTEMPTS_TO_START):
        with log.open("ab") as output:
            ended = subprocess.run(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
            )
        if ended.returncode == 0:
            return
    (folder / "failed").touch()
