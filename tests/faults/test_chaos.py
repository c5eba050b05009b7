"""Half a minute of everything at once: `make chaos` has more of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def test_half_a_minute_of_chaos_causes_no_violation() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "bench.chaos", "--seconds", "30"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
