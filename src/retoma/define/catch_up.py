"""Which of the times at which a schedule was due start a run now. Pure: no clock, no database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from retoma.define.recurrence import Rule, count_before, find_next, list_last
from retoma.records import CatchUp

GRACE = timedelta(minutes=1)  # how late a run may start that is not caught up: longer than a restart of a process
MAX_COUNTED = 1_000


@dataclass(frozen=True)
class DueTimes:
    """`missed` times from the expected one on start nothing. `due_at` starts a run now; None: nothing does.

    `next_at` is when the schedule is due after that, possibly at once; None: never again.
    """

    missed: int
    due_at: datetime | None
    next_at: datetime | None


def choose_due_time(
    rule: Rule, expected_at: datetime, now: datetime, catch_up: CatchUp, limit: int, jitter: timedelta
) -> DueTimes:
    """Return what to do at `now`, when the schedule has been due since `expected_at`, with its jitter."""
    # With its jitter, a later time may still be ahead: it is due once the longest jitter has passed.
    passed = list_last(rule, expected_at, max(expected_at, now - jitter), limit if catch_up is CatchUp.ALL else 1)
    if catch_up is CatchUp.SKIP:
        passed = [each for each in passed if now - each <= GRACE + jitter]
    if not passed:
        return DueTimes(count_before(rule, expected_at, now, MAX_COUNTED), None, find_next(rule, now))
    return DueTimes(count_before(rule, expected_at, passed[0], MAX_COUNTED), passed[0], find_next(rule, passed[0]))
