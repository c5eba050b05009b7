"""Run ids (UUIDv7), keys of jobs, and reserved names. The caller of a start creates the id, so it can safely retry."""

from __future__ import annotations

import os
import threading
import time
from datetime import datetime
from uuid import UUID

JobKey = tuple[UUID, str, str, int]  # run, step, item and revision
ClaimKey = tuple[UUID, str, str, int, int]  # run, step, item, revision and fence of a claimed job
ALL_TENANTS = "*"  # the tenant of runs that no single tenant owns: only these may start runs of other tenants
_CLOCK_STEP = 245  # nanoseconds: the smallest step of the 12 bits for fractions of a millisecond
_lock = threading.Lock()
_last_timestamp = 0


def new_run_id() -> UUID:
    """Return a new id that sorts after all earlier ids of this process."""
    milliseconds, nanoseconds = divmod(_next_timestamp(), 1_000_000)
    part = nanoseconds * 4096 // 1_000_000
    random = int.from_bytes(os.urandom(8)) & (1 << 62) - 1
    return UUID(int=milliseconds << 80 | 0x7 << 76 | part << 64 | 0x2 << 62 | random)


def first_run_id(at: datetime) -> UUID:
    """Return the lowest id that a run created at this time can have. No run was created before 1970."""
    return UUID(int=max(0, int(at.timestamp() * 1_000)) << 80)


def get_age(run: UUID) -> float:
    """Return the seconds since the id of a run was created."""
    return time.time() - (run.int >> 80) / 1_000


def _next_timestamp() -> int:
    """Return the time in nanoseconds, always above the last returned value."""
    global _last_timestamp
    with _lock:
        _last_timestamp = max(time.time_ns(), _last_timestamp + _CLOCK_STEP)
        return _last_timestamp
