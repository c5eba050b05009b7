"""Run ids: UUIDv7, made by the caller's side before the first try, so that a start can be sent again; names of jobs."""

from __future__ import annotations

import os
import threading
import time
from datetime import datetime
from uuid import UUID

ClaimKey = tuple[UUID, str, str, int, int]  # run, step, item, revision and fence of a job that is held
_CLOCK_STEP = 245  # nanoseconds, so that the 12 bits for a part of a millisecond grow by one
_lock = threading.Lock()
_last_timestamp = 0


def new_run_id() -> UUID:
    """A new id that sorts after all that this process made before."""
    milliseconds, nanoseconds = divmod(_next_timestamp(), 1_000_000)
    part = nanoseconds * 4096 // 1_000_000
    random = int.from_bytes(os.urandom(8)) & (1 << 62) - 1
    return UUID(int=milliseconds << 80 | 0x7 << 76 | part << 64 | 0x2 << 62 | random)


def first_run_id(at: datetime) -> UUID:
    """The first id that a run which is made then could have. No run was made before 1970."""
    return UUID(int=max(0, int(at.timestamp() * 1_000)) << 80)


def _next_timestamp() -> int:
    """The time in nanoseconds, or a little after what was given last."""
    global _last_timestamp
    with _lock:
        _last_timestamp = max(time.time_ns(), _last_timestamp + _CLOCK_STEP)
        return _last_timestamp
