"""Programs that read untrusted media and texts have none of the worker's privileges."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from retoma_apps.providers import ffmpeg
from retoma_apps.providers.speech import espeak
from tests.system_packages import require
from tests.worker.isolated_steps import privileges

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has capabilities")

SPY = "import pathlib; print(pathlib.Path('/proc/self/status').read_text())"
RENDERER = f"""
import json, pathlib, sys
from retoma_apps.providers.gpu import renderer
async def render(folder, given):
    {SPY}
renderer.render = render
pathlib.Path(sys.argv[1], "order.json").write_text("{{}}")
renderer.main()
"""


@pytest.fixture(autouse=True)
def _has_privileges() -> None:
    require(os.geteuid() == 0, "root, to have privileges to drop")


async def test_ffmpeg_has_no_privileges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = tmp_path / "ffmpeg"
    spy.write_text("#!/bin/sh\ncat /proc/self/status\n")
    spy.chmod(0o755)
    monkeypatch.setattr(ffmpeg, "find_ffmpeg", lambda: str(spy))
    output, _ = await (await ffmpeg._start([], tmp_path, "error")).communicate()
    assert privileges(output.decode()) == []


async def test_espeak_has_no_privileges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = tmp_path / "espeak.py"
    spy.write_text(SPY)
    monkeypatch.setattr(espeak, "_PROGRAM", spy)
    output, _ = await (await espeak._start([])).communicate()
    assert privileges(output.decode()) == []


def test_a_local_render_has_no_privileges(tmp_path: Path) -> None:
    output = subprocess.run([sys.executable, "-c", RENDERER, tmp_path], stdout=subprocess.PIPE, text=True, check=True)
    assert privileges(output.stdout) == []
