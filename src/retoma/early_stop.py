"""Lets `retoma worker`, `serve` and `dev` end with 0 when they are told to stop before they have begun anything.

Imported first of all, since the rest takes a moment to import, and the application may take long. The command replaces
these handlers as soon as it has something to bring to an end.
"""

from __future__ import annotations

import signal
import sys
from pathlib import PurePath
from types import FrameType

COMMANDS = {"worker", "serve", "dev"}
_stop_requested = False


def was_stop_requested() -> bool:
    """Whether the process was told to stop, and something swallowed the exit that followed."""
    return _stop_requested


def _is_service_command() -> bool:
    """Whether this process is one of these commands, and not a program that imports the library."""
    program, *rest = sys.argv or [""]
    if program == "-m":  # the package is being imported by `python -m`
        given = sys.orig_argv
        is_ours = "-m" in given and given[given.index("-m") + 1 :][:1] == ["retoma"]
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
