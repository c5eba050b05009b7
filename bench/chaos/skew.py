"""A clock that is hours off, for single processes: a small library that gcc makes, where there is gcc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

COMPILER = shutil.which("gcc") or shutil.which("cc")
SOURCE = Path(__file__).with_name("skew.c")


def library(folder: Path) -> Path | None:
    """The library, made in `folder`; None without a compiler."""
    if COMPILER is None:
        return None
    made = folder / "skew.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", made, SOURCE, "-ldl"], check=True)
    return made


def environment(library: Path | None, seconds: int) -> dict[str, str]:
    """What a process must be started with for its clock to be `seconds` ahead."""
    return {"LD_PRELOAD": str(library), "CHAOS_SKEW": str(seconds)} if library and seconds else {}
