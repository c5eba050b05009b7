"""Child processes that providers start on this machine."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress


async def kill_process(process: asyncio.subprocess.Process) -> None:
    """Kill the process if it is still running, and wait for its exit."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)  # Process.kill reaps it, and asyncio misses the exit
        await process.wait()
