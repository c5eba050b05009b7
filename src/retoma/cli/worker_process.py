"""The worker of `retoma dev`: a supervised subprocess that stops with its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

MIN_UPTIME_SECONDS = 5.0  # a worker that exits sooner is restarted with a delay
MAX_BACKOFF_SECONDS = 10.0

OnExit = Callable[[int, int], Awaitable[None]]


class SupervisedWorker:
    """Supervise one worker process. `on_exit(pid, code)` is awaited before a restart."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], on_exit: OnExit) -> None:
        self.pid = 0
        self.started = asyncio.Event()
        self._arguments = arguments
        self._environment = {**os.environ, **environment}
        self._on_exit = on_exit
        self._process: Process | None = None
        self._stopping = asyncio.Event()

    async def supervise(self) -> None:
        """Run a worker, and restart it when it exits, until stopped."""
        early_exits = 0
        while not self._stopping.is_set():
            started_at = time.monotonic()
            process = self._process = await self._start()
            self.pid = process.pid
            self.started.set()
            if self._stopping.is_set():
                self._signal(signal.SIGTERM)
            code = await process.wait()
            if not self._stopping.is_set():
                await self._on_exit(process.pid, code)
                early_exits = early_exits + 1 if time.monotonic() - started_at < MIN_UPTIME_SECONDS else 0
                await self._sleep(min(2.0 ** (early_exits - 2), MAX_BACKOFF_SECONDS) if early_exits > 1 else 0)

    def stop(self) -> None:
        """Drain the worker. A second call makes it release its jobs at once."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> int:
        """Kill the worker with SIGKILL and return its process ID."""
        self._signal(signal.SIGKILL)
        return self.pid

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _start(self) -> Process:
        # Use a separate session: Ctrl-C must reach only the parent, which forwards it. If the parent is killed, the
        # pipe closes and the worker drains.
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "retoma",
            "worker",
            *self._arguments,
            "--until-stdin-closes",
            stdin=PIPE,
            env=self._environment,
            start_new_session=True,
        )

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
