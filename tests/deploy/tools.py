"""The programs that check the files in `deploy/`. `make deploy-tools` installs them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.system_packages import require

FOLDER = Path(__file__).resolve().parents[2] / "deploy"


def require_module(name: str) -> None:
    require(find_spec(name) is not None, f"{name} (make deploy-tools)")


def run_tool(name: str, *arguments: str) -> None:
    """Run a program of `make deploy-tools`, which must find no fault."""
    program = shutil.which(name, path=Path(sys.executable).parent)
    require(program is not None, f"{name} (make deploy-tools)")
    ended = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
