"""A process that outlives a killed worker for a moment, to kill the processes that its isolated steps have started.

A child process dies with its worker, but the processes that it started do not. This file imports nothing of Retoma,
because it runs as a script.
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
    """Watches the process groups of one worker. It starts with the first group, and notices the worker's death by a
    closed pipe."""

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
        """Stop watching a group that was killed: the system may reuse its number."""
        self._send(-group)

    def close(self) -> None:
        """Kill all groups that are still watched."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                self._process.wait(CLOSE_TIMEOUT)
            except subprocess.TimeoutExpired:  # a process that the worker forked holds the pipe open
                self._process.kill()
                self._process.wait()
            self._process = None

    def _send(self, number: int) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it was killed, too
                self._process.stdin.write(b"%d\n" % number)


def _kill_groups_at_end(numbers: Iterable[bytes]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # may be sent to all processes while the worker drains
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
