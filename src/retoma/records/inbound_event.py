"""Events that other systems send."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class InboundEvent:
    """An event of a stream. `sequence` counts from 1 within the stream; `received_at` is set once it is recorded."""

    event_id: str
    sequence: int
    body: Any
    received_at: datetime | None = None
