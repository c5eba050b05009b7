"""Shift the clock of single processes by hours: a small preloaded library, compiled with gcc if available."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

COMPILER = shutil.which("gcc") or shutil.which("cc")
SOURCE = Path(__file__).with_name("skew.c")


def library(folder: Path) -> Path | None:
    """Compile the library into `folder`; return None without a compiler."""
    if COMPILER is None:
        return None
    made = folder / "skew.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", made, SOURCE, "-ldl"], check=True)
    return made


def environment(library: Path | None, seconds: int) -> dict[str, str]:
    """Return the environment of a process whose clock is `seconds` ahead."""
    return {"LD_PRELOAD": str(library), "CHAOS_SKEW": str(seconds)} if library and seconds else {}
