"""Programs that generate clients, each installed once into a folder that later runs use again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ASKED_BY = "RETOMA_TEST_CLIENTS"
PYTHON = {"mypy": "2.4.1", "openapi-python-client": "0.29.1", "ruff": "0.17.4"}
TYPESCRIPT = {"openapi-fetch": "0.17.0", "openapi-typescript": "7.13.0", "typescript": "5.9.3"}
SECONDS = 300


def python_tools() -> Path:
    """Return the folder with the programs of a virtual environment, or skip the test."""
    wanted = [f"{name}=={version}" for name, version in PYTHON.items()]
    folder = _folder("python", *wanted)
    if not (folder / "installed").exists():
        _install([sys.executable, "-m", "venv", "--clear", str(folder)], folder)
        _install([str(folder / "bin" / "pip"), "install", "--quiet", *wanted], folder)
        (folder / "installed").touch()
    return folder / "bin"


def typescript_tools() -> Path:
    """Return the folder that has `node_modules`, or skip the test."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    folder = _folder("typescript", *(f"{name}@{version}" for name, version in TYPESCRIPT.items()))
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(
            json.dumps({"private": True, "type": "module", "dependencies": TYPESCRIPT})
        )
        options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
        _install([npm, "install", *options], folder)
        (folder / "installed").touch()
    return folder


def _folder(language: str, *wanted: str) -> Path:
    if not os.environ.get(ASKED_BY):
        pytest.skip(f"installs programs from the network: set {ASKED_BY}=1 to run it")
    return Path(tempfile.gettempdir()) / f"retoma-{language}-clients-{'-'.join(wanted)}"


def _install(command: list[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=SECONDS)
    except subprocess.SubprocessError as error:
        output = (getattr(error, "stderr", b"") or b"").decode(errors="replace")[-400:]
        pytest.skip(f"{Path(command[0]).name} could not install it: {error} {output}")
