"""Tests of the tests: each planted bug makes the test fail that is there to notice it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planted.bugs import BUGS, Bug

PROJECT = Path(__file__).parents[2]
FAST_ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TEST_WAIT_TIMEOUT": "4"}
MODEL_ENVIRONMENT = {"MODEL_EXAMPLES": "500"}  # the first that fails ends it


class ForkServer:
    """Runs tests in forks of one process, which spares each of them half a second of imports."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.planted.fork_server"],
            cwd=PROJECT,
            env=os.environ | FAST_ENVIRONMENT | MODEL_ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run_test(self, test: str, sources: Path, output: Path) -> str:
        """Return pytest's output for this test on these sources."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        body = {"sources": str(sources), "test": test, "output": str(output)}
        self._process.stdin.write(json.dumps(body) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "over\n"
        return output.read_text()

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    made = ForkServer()
    yield made
    made.close()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_detected(bug: Bug, fork_server: ForkServer, tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "src", tmp_path / "src", copy_function=os.symlink)
    file = tmp_path / (bug.file if bug.file.startswith("src/") else f"src/retoma/{bug.file}")
    sources = file.read_text()
    assert sources.count(bug.right) == 1, f"{bug.file} has changed: plant this bug again"
    file.unlink()
    file.write_text(sources.replace(bug.right, bug.wrong))
    output = fork_server.run_test(bug.killed_by, tmp_path / "src", tmp_path / "output")
    # A test that cannot even begin proves nothing.
    assert re.search(r"^1 failed(?!.*error)", output, re.MULTILINE), output[-2000:]
