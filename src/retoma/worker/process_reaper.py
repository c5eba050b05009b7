"""A process that outlives its killed worker by a moment, to kill what the steps in its children have started.

A child dies with its worker by itself, but its own children do not. Nothing of Retoma is imported here, as this file is
run alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress

CLOSE_TIMEOUT = 1.0  # seconds


class ProcessReaper:
    """Knows the process groups of one worker. It starts with the first of them, and hears of our death by a pipe."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        if self._process is None:
            command = [sys.executable, "-I", "-S", __file__]
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.PIPE, bufsize=0, start_new_session=True, env={}
            )
        self._send(group)

    def forget(self, group: int) -> None:
        """It has been killed, and its number may become that of others."""
        self._send(-group)

    def close(self) -> None:
        """What is still watched is killed."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                self._process.wait(CLOSE_TIMEOUT)
            except subprocess.TimeoutExpired:  # somebody whom the worker has forked holds the pipe
                self._process.kill()
                self._process.wait()
            self._process = None

    def _send(self, number: int) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):  # somebody killed it, too
                self._process.stdin.write(b"%d\n" % number)


def _kill_groups_at_end(numbers: Iterable[bytes]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which may be sent to all at once, while the worker drains
    groups: set[int] = set()
    for number in map(int, numbers):
        if number > 0:
            groups.add(number)
        else:
            groups.discard(-number)
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _kill_groups_at_end(sys.stdin.buffer)
