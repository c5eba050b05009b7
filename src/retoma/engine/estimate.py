"""When a run will be over, as far as its pace tells."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from retoma.records import StepProgress
from retoma.states import JOB_FINAL_STATES


def estimate_end(steps: Sequence[StepProgress], now: datetime) -> datetime | None:
    """The end of the slowest step under way, if it keeps its pace. None until a part of one has ended.

    Steps that have not begun are not in it, because nothing is known of them.
    """
    paces = [_estimate_step_end(step, now) for step in steps if step.total > 1]
    return max((end for end in paces if end is not None), default=None)


def _estimate_step_end(step: StepProgress, now: datetime) -> datetime | None:
    ended = sum(count for state, count in step.jobs.items() if state in JOB_FINAL_STATES)
    if step.started_at is None or not 0 < ended < step.total:
        return None
    return now + (now - step.started_at) * ((step.total - ended) / ended)
