"""Let `retoma worker`, `serve` and `dev` exit with 0 if they are stopped before they have started.

This module is imported first: importing the rest takes a moment, and the application may take long. The command
replaces these signal handlers once it has something to shut down; until then, a sudden exit loses nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import PurePath
from types import FrameType

COMMANDS = {"worker", "serve", "dev"}


def _is_service_command() -> bool:
    """Return whether this process is one of these commands, and not a program that imports the library."""
    program, *rest = sys.argv or [""]
    if program == "-m":  # the package is being imported by `python -m`
        arguments = sys.orig_argv
        is_ours = "-m" in arguments and arguments[arguments.index("-m") + 1 :][:1] == ["retoma"]
    else:
        is_ours = PurePath(program).name == "retoma"
    return is_ours and not COMMANDS.isdisjoint(rest)


def _exit(_: int, __: FrameType | None) -> None:
    os._exit(0)  # a SystemExit could be swallowed, for example by a destructor


if _is_service_command():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)
