"""Programs that providers start on this machine."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress


async def kill_process(process: asyncio.subprocess.Process) -> None:
    """It is gone after this, whether or not it was done."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)  # Process.kill would reap it, and asyncio then misses its end
        await process.wait()
