"""A process that is stopped before it has started anything exits cleanly. It is held at a point of its startup."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment import without_project_variables
from tests.wait_timeout import WAIT_TIMEOUT

# Read by every Python process whose path has it: the import of one module waits for a signal.
HOLD = """
import os, sys

class Holding:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["HOLD_AT"]:
            os.write(1, b"held")
            open(os.environ["HOLD_BY"]).read()

sys.meta_path.insert(0, Holding())
"""
APP = """
from retoma import App, Pipeline
app = App("held", pipelines=[Pipeline("held")])
"""
DESTRUCTOR = """
import os

class Held:
    def __del__(self):
        os.write(1, b"held")
        open(os.environ["HOLD_BY"]).read()

Held()
"""


@pytest.mark.parametrize(
    ("command", "point", "number"),
    [
        ("worker", "retoma.app", signal.SIGTERM),
        ("worker", "retoma.cli.commands", signal.SIGTERM),
        ("worker", "held_app", signal.SIGTERM),
        ("worker", "held_app", signal.SIGINT),
        ("serve", "held_app", signal.SIGTERM),
        ("dev", "held_app", signal.SIGTERM),
        ("worker", "a destructor", signal.SIGTERM),
    ],
)
def test_a_stop_right_after_startup_exits_cleanly(
    tmp_path: Path, command: str, point: str, number: signal.Signals
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HOLD)
    (tmp_path / "held_app.py").write_text(DESTRUCTOR + APP if point == "a destructor" else APP)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    ours = {"PYTHONPATH": str(tmp_path), "HOLD_AT": point, "HOLD_BY": str(fifo), "RETOMA_HOME": str(tmp_path / "home")}
    port = ["--port", "0"] if command == "serve" else []
    process = subprocess.Popen(
        [sys.executable, "-m", "retoma", command, "held_app:app", *port],
        cwd=tmp_path,
        env=without_project_variables(os.environ) | ours,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.read(4) == b"held"
        process.send_signal(number)
        output, _ = process.communicate(timeout=WAIT_TIMEOUT)
        assert (process.returncode, output) == (0, b"")
    finally:
        process.kill()


def test_a_program_that_imports_the_library_keeps_its_signal_handlers() -> None:
    code = "import signal, retoma; print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    output = subprocess.run(
        [sys.executable, "-c", code, "worker"], capture_output=True, check=True, timeout=WAIT_TIMEOUT
    )
    assert output.stdout == b"True\n"
