"""Tune garbage collection of long-lived processes: rare, but before garbage fills the memory."""

from __future__ import annotations

import asyncio
import gc
import resource
from pathlib import Path

GC_THRESHOLDS = (50_000, 20, 50)  # with Python's defaults, collections took a tenth of a busy worker's time
SECONDS_BETWEEN_CHECKS = 1.0
MAX_GROWTH_BYTES = 128 << 20  # growth of resident memory that justifies a full collection


def collect_rarely() -> None:
    """Freeze the existing objects and raise the thresholds for this process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def collect_on_growth() -> None:
    """Collect whenever resident memory has grown a lot since the last collection, until cancelled."""
    baseline = get_resident_bytes()
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_CHECKS)
        now = get_resident_bytes()
        if now - baseline > MAX_GROWTH_BYTES:
            gc.collect()
            baseline = get_resident_bytes()
        baseline = min(baseline, now)


def get_resident_bytes() -> int:
    """Return the resident memory of this process, or 0 if it is unknown."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0
