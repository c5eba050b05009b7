"""Run ids: UUIDv7, made by the caller's side before the first try, so that a start can be sent again."""

from __future__ import annotations

import os
import time
from uuid import UUID


def new_run_id() -> UUID:
    """A new id that sorts after those made earlier, to the millisecond."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    value = milliseconds << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)
