"""Tests of the tests: each planted bug makes the test fail that is there to notice it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted.bugs import BUGS, Bug

PROJECT = Path(__file__).parents[2]
QUICKLY = {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TEST_PATIENCE": "4"}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_noticed(bug: Bug, tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "src" / "retoma" / bug.file
    sources = file.read_text()
    assert sources.count(bug.right) == 1, f"{bug.file} has changed: plant this bug anew"
    file.write_text(sources.replace(bug.right, bug.wrong))
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", bug.killed_by, "-x", "-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin"],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "src")} | QUICKLY,
        capture_output=True,
        text=True,
        timeout=120,
    )
    # A test that cannot even begin proves nothing.
    assert re.search(r"^1 failed(?!.*error)", ended.stdout, re.MULTILINE), ended.stdout[-2000:]
