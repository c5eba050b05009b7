"""Commands as a person runs them. Those that keep running are real processes, ended by the process id that was started;
those that just answer run in this process, which saves half a second each.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pytest

from retoma import logs
from retoma.cli import main, process_exit
from retoma.cli.config import SETTINGS_FROM_FLAGS
from tests.environment import without_project_variables

T = TypeVar("T")
WAIT_TIMEOUT = 90.0

FILM = '''
import asyncio
import logging
import os
from pathlib import Path

from pydantic import BaseModel

from retoma import Items, Pipeline, Retry


class Brief(BaseModel):
    title: str = "calm"
    scenes: int = 2


film = Pipeline("film", inputs=Brief, retry=Retry(0))


@film.step
def lines(title: str, scenes: int) -> list[str]:
    logging.getLogger("film").warning("writing %s", title)
    return [f"{title} {number}" for number in range(scenes)]


@film.each(lines, queue="image")
async def image(line: str) -> str:
    """A line that begins with "slow" is drawn when the file `go` is there; one that begins with "bad" never."""
    with Path("began").open("a") as began:
        began.write(f"{os.getpid()} {line}\\n")
    if line.startswith("bad"):
        raise ValueError("no [bold]paint[/bold] \\x1b[2J left")
    while line.startswith("slow") and not Path("go").exists():
        await asyncio.sleep(0.02)
    return line.upper()


@film.step
def cut(image: Items[str]) -> str:
    return " ".join(image)


app = film
'''


@dataclass
class Terminal:
    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, *command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        if command[0] != "dev" and stdin is None:
            return self._run_here(*command)
        return subprocess.run(
            [sys.executable, "-m", "retoma", *command],
            cwd=self.folder,
            env=self._environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=10 * WAIT_TIMEOUT,
        )

    def out(self, *command: str, stdin: str | None = None) -> str:
        """Return the output of a command that must succeed."""
        ended = self.run(*command, stdin=stdin)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def json(self, *command: str) -> Any:
        return json.loads(self.out(*command, "-o", "json"))

    def start(self, *options: str) -> str:
        return self.out("start", "film", "film.py", *options).strip()

    def state(self, run: str) -> str:
        return str(self.json("runs", "show", run)["run"]["state"])

    @contextmanager
    def process(self, *command: str, **variables: str) -> Iterator[Process]:
        """Start a command that keeps running; it is killed at the end."""
        output = (self.folder / f"output-{time.monotonic_ns()}").open("w+")
        child = subprocess.Popen(
            [sys.executable, "-m", "retoma", *command],
            cwd=self.folder,
            env=self._environment() | variables,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield Process(child, Path(output.name))
        finally:
            child.kill()
            child.wait()
            if child.stdin is not None:
                child.stdin.close()
            output.close()

    @contextmanager
    def worker(self, *options: str, **variables: str) -> Iterator[Process]:
        """A worker that is ready."""
        with self.process("worker", "film.py", *options, **variables) as worker:
            worker.wait_for_output("worker_ready")
            yield worker

    def wait_for_images(self, count: int = 1) -> list[list[str]]:
        """The process ids and lines of the images that were begun, once there are so many."""
        file = self.folder / "began"
        return wait_until(lambda: (begun := _words(file)) and len(begun) >= count and begun)

    def _run_here(self, *command: str) -> subprocess.CompletedProcess[str]:
        with (
            patch.dict(os.environ, self._environment(), clear=True),
            patch.object(sys, "argv", ["retoma", *command]),
            patch.object(sys, "path", [*sys.path]),
            patch.object(sys, "dont_write_bytecode", True),
            patch.object(logs, "configure_logging"),
            patch.object(process_exit, "finish"),  # it ends the process
            chdir(self.folder),
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
            pytest.raises(SystemExit) as ended,
        ):
            main()
        SETTINGS_FROM_FLAGS.clear()
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(self.folder)):
                del sys.modules[name]
        return subprocess.CompletedProcess(command, int(ended.value.code or 0), out.getvalue(), err.getvalue())

    def _environment(self) -> dict[str, str]:
        clean = {
            name: value for name, value in without_project_variables(os.environ).items() if not name.startswith("LC_")
        }
        home = {"RETOMA_HOME": str(self.folder / "home"), "LANG": "C.UTF-8", "NO_COLOR": "1"}
        home["PYTHONDONTWRITEBYTECODE"] = "1"  # film.py is changed more often than a timestamp shows
        return clean | home | self.variables


@dataclass
class Process:
    child: subprocess.Popen[str]
    output: Path

    @property
    def pid(self) -> int:
        return self.child.pid

    def wait_for_output(self, text: str) -> str:
        """Return the whole output once it contains this text."""
        return wait_until(lambda: (message := self.output.read_text()) and text in message and message)

    def wait_for_exit(self) -> int:
        return self.child.wait(timeout=WAIT_TIMEOUT)


def wait_until(found: Callable[[], T | bool | None], timeout: float = WAIT_TIMEOUT) -> T:
    """Return the result of `found` once it is truthy."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if answer := found():
            return answer  # type: ignore[return-value]
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout:g} s")


def _words(file: Path) -> list[list[str]]:
    return [line.split(" ", 1) for line in file.read_text().splitlines()] if file.exists() else []
