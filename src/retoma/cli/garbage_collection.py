"""Garbage collection of long-lived processes: rare, and yet before garbage fills the memory."""

from __future__ import annotations

import asyncio
import gc
import resource
from pathlib import Path

GC_THRESHOLDS = (50_000, 20, 50)  # thresholds; with Python's own, collections took a tenth of a busy worker's time
SECONDS_BETWEEN_CHECKS = 1.0
MAX_GROWTH_BYTES = 128 << 20  # bytes of resident memory after which a full collection is worth its time


def collect_rarely() -> None:
    """Leave alone what is there by now, and raise the thresholds for the rest of this process's life."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def collect_on_growth() -> None:
    """Collect whenever resident memory has grown a lot since the last collection, until cancelled."""
    settled = get_resident_bytes()
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_CHECKS)
        now = get_resident_bytes()
        if now - settled > MAX_GROWTH_BYTES:
            gc.collect()
            settled = get_resident_bytes()
        settled = min(settled, now)


def get_resident_bytes() -> int:
    """Return the resident memory of this process, or 0 where it cannot be known."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0
