"""Estimate when a run will end, from its pace."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from retoma.records import StepProgress


def estimate_end(steps: Sequence[StepProgress], now: datetime) -> datetime | None:
    """Return the end of the slowest running step at its current pace, or None until an item of one has ended.

    Steps that have not started are ignored, because their pace is unknown.
    """
    paces = [_estimate_step_end(step, now) for step in steps if step.total > 1]
    return max((end for end in paces if end is not None), default=None)


def _estimate_step_end(step: StepProgress, now: datetime) -> datetime | None:
    if step.started_at is None or not 0 < step.ended_count < step.total:
        return None
    return now + (now - step.started_at) * ((step.total - step.ended_count) / step.ended_count)
