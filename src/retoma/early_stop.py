"""Let `retoma worker`, `serve` and `dev` exit with 0 if they are stopped before they have started.

This module is imported first: importing the rest takes a moment, and the application may take long. The command
replaces these signal handlers once it has something to shut down.
"""

from __future__ import annotations

import signal
import sys
from pathlib import PurePath
from types import FrameType

COMMANDS = {"worker", "serve", "dev"}
_stop_requested = False


def was_stop_requested() -> bool:
    """Return whether the process was asked to stop, but something swallowed the SystemExit."""
    return _stop_requested


def _is_service_command() -> bool:
    """Return whether this process is one of these commands, and not a program that imports the library."""
    program, *rest = sys.argv or [""]
    if program == "-m":  # the package is being imported by `python -m`
        arguments = sys.orig_argv
        is_ours = "-m" in arguments and arguments[arguments.index("-m") + 1 :][:1] == ["retoma"]
    else:
        is_ours = PurePath(program).name == "retoma"
    return is_ours and not COMMANDS.isdisjoint(rest)


def _handle_signal(_: int, __: FrameType | None) -> None:
    global _stop_requested
    _stop_requested = True
    raise SystemExit(0)


if _is_service_command():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _handle_signal)
