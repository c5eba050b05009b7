"""What `retoma doctor` finds, and the optional dependencies of this package."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """A line of `retoma doctor`, which exits with 1 if there is a problem. `advice` says what to do."""

    level: Level
    subject: str
    message: str
    advice: str = ""


def check_extra(extra: str, if_missing: Level = "warning") -> Finding:
    """Check whether an extra of this package is installed. Return a finding of the level `if_missing` if it is not."""
    subject = f"extra {extra}"
    if missing := list_missing(extra):
        return Finding(if_missing, subject, f"not installed: {', '.join(missing)}", get_install_command(extra))
    return Finding("ok", subject, "installed: " + ", ".join(f"{part} {version(part)}" for part in list_extras()[extra]))


def list_missing(extra: str) -> list[str]:
    """Return the distributions of an extra that are not installed."""
    return [part for part in list_extras()[extra] if not _is_installed(part)]


def list_extras() -> dict[str, list[str]]:
    """Return the distributions of each extra, from the metadata of this package."""
    extras: dict[str, list[str]] = {}
    for requirement in requires("retoma") or ():
        if found := re.match(r"""([\w.-]+).*;\s*extra == ['"]([\w-]+)['"]""", requirement):
            extras.setdefault(found[2], []).append(found[1])
    return extras


def _is_installed(part: str) -> bool:
    try:
        distribution(part)
    except PackageNotFoundError:
        return False
    return True


def get_install_command(extra: str) -> str:
    """Return the command, with the path of this interpreter and from the source checkout if there is one."""
    program, folder = Path(sys.executable), Path.cwd()
    python = str(program.relative_to(folder) if program.is_relative_to(folder) else program)
    clone = Path(__file__).resolve().parents[2]
    if not (clone / "pyproject.toml").exists():
        target = f"'retoma[{extra}]'"
    else:
        target = f"-e '.[{extra}]'" if clone == folder else f"-e {shlex.quote(f'{clone}[{extra}]')}"
    return f"{shlex.quote(python)} -m pip install {target}"
