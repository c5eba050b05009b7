"""The worker of `retoma dev`: a process of its own, kept alive, and stopped with its keeper."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

MIN_UPTIME_SECONDS = 5.0  # seconds; a worker that ends sooner is not started again at once
MAX_BACKOFF_SECONDS = 10.0

OnExit = Callable[[int, int], Awaitable[None]]


class SupervisedWorker:
    """One worker process at a time. `on_death(pid, code)` is awaited before the next is started."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], on_exit: OnExit) -> None:
        self.pid = 0
        self.started = asyncio.Event()
        self._arguments = arguments
        self._environment = {**os.environ, **environment}
        self._on_exit = on_exit
        self._process: Process | None = None
        self._stopping = asyncio.Event()

    async def supervise(self) -> None:
        """Run a worker, and another when it has died, until stopped."""
        short_lives = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            process = self._process = await self._start()
            self.pid = process.pid
            self.started.set()
            if self._stopping.is_set():
                self._signal(signal.SIGTERM)
            code = await process.wait()
            if not self._stopping.is_set():
                await self._on_exit(process.pid, code)
                short_lives = short_lives + 1 if time.monotonic() - began < MIN_UPTIME_SECONDS else 0
                await self._sleep(min(2.0 ** (short_lives - 2), MAX_BACKOFF_SECONDS) if short_lives > 1 else 0)

    def stop(self) -> None:
        """Let it drain. Asked again, it gives back its jobs at once."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> int:
        """As the worst crash does; gives the process id."""
        self._signal(signal.SIGKILL)
        return self.pid

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _start(self) -> Process:
        # In a session of its own, because Ctrl-C is for the keeper, which tells it. If the keeper is killed, the
        # pipe closes, and the worker drains.
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
