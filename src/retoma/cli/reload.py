"""Reload `retoma dev`: detect changes of the application's code and restart."""

from __future__ import annotations

import asyncio
import os
import sys
import sysconfig
from asyncio.subprocess import PIPE
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

POLL_SECONDS = 0.5
# Port and token, passed to the process that replaces this one.
PORT_VARIABLE = "RETOMA_DEV_PORT"
TOKEN_VARIABLE = "RETOMA_DEV_TOKEN"  # noqa: S105  (the name of the variable)
_RETOMA_ROOT = Path(__file__).resolve().parents[1]
_IMPORT_SCRIPT = """
import sys
from retoma.cli import application
from retoma.settings import Settings
application.load(sys.argv[1], Settings())
"""


async def wait_for_code_change(location: str, on_broken: Callable[[str], None]) -> None:
    """Return once a loaded source file has changed and the application can be imported with it.

    If the import fails, call `on_broken` with the error and wait for the next change.
    """
    before = _modification_times(list_source_files())
    while True:
        await asyncio.sleep(POLL_SECONDS)
        now = _modification_times(before)
        if now != before:
            before = now
            error = await _find_import_error(location)
            if error is None:
                return
            on_broken(error)


def list_source_files() -> list[Path]:
    """Return the files of all loaded modules that are neither installed nor part of Retoma."""
    installed = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    files = (Path(file).resolve() for module in list(sys.modules.values()) if (file := _source_file(module)))
    return sorted({file for file in files if not any(file.is_relative_to(root) for root in [*installed, _RETOMA_ROOT])})


def restart(port: int, token: str) -> NoReturn:
    """Replace this process with the same arguments, port and token, so open pages keep working."""
    os.environ |= {PORT_VARIABLE: str(port), TOKEN_VARIABLE: token}
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


def _source_file(module: object) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) and file.endswith(".py") else None


def _modification_times(files: Iterable[Path]) -> dict[Path, int]:
    """Return the modification time of each file; 0 if it is missing, for example while an editor saves it."""
    return {file: file.stat().st_mtime_ns if file.exists() else 0 for file in files}


async def _find_import_error(location: str) -> str | None:
    """Import the application in a new process. Return the error, or None."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _IMPORT_SCRIPT, location, stdout=PIPE, stderr=PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    _, stderr = await process.communicate()
    if process.returncode == 0:
        return None
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {process.returncode}"
