"""axe-core, the checker of accessibility, in an open page."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page

VERSION = "4.14.0"
ASKED_BY = "RETOMA_TEST_AXE"
SECONDS = 300


async def find_violations(page: Page) -> list[str]:
    """Return each rule that the page violates, with the first element that does."""
    await page.evaluate(load_source())
    found: dict[str, Any] = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found["violations"]]


@cache
def load_source() -> str:
    """Return the program, installed by npm into the temporary folder, or skip the test."""
    npm = shutil.which("npm")
    if not os.environ.get(ASKED_BY):
        pytest.skip(f"installs a program from the network: set {ASKED_BY}=1 to run it")
    if npm is None:
        pytest.skip("npm is not installed")
    folder = Path(tempfile.gettempdir()) / f"retoma-axe-{VERSION}"
    program = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--no-save"]
        subprocess.run(
            [npm, "install", *options, f"axe-core@{VERSION}"],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )
    return program.read_text(encoding="utf-8")
