"""The states of runs, jobs, reviews and deliveries, and the permitted transitions between them.

The database holds the same tables (`retoma.transitions`) and rejects any other transition; a test compares the two.
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    PARKED = "parked"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    QUARANTINED = "quarantined"


class ReviewState(StrEnum):
    OPEN = "open"
    APPROVED = "approved"
    SENT_BACK = "sent_back"
    REJECTED = "rejected"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class DeliveryState(StrEnum):
    DUE = "due"
    SENDING = "sending"
    DELIVERED = "delivered"
    DEAD = "dead"


class RunState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    NEEDS_REVIEW = "needs_review"
    STUCK = "stuck"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        return self in RUN_FINAL_STATES

    @property
    def waits_for_people(self) -> bool:
        return self in (RunState.PAUSED, RunState.NEEDS_REVIEW)

    @property
    def can_run(self) -> bool:
        """Whether a run in this state runs, or may run again."""
        return self is RunState.RUNNING or RunState.RUNNING in RUN_TRANSITIONS[self]


JOB_FINAL_STATES = frozenset(
    {JobState.SUCCEEDED, JobState.FAILED, JobState.SKIPPED, JobState.CANCELLED, JobState.QUARANTINED}
)

RUN_FINAL_STATES = frozenset(
    {
        RunState.COMPLETED,
        RunState.COMPLETED_WITH_ERRORS,
        RunState.FAILED,
        RunState.REJECTED,
        RunState.CANCELLED,
    }
)

JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset({JobState.READY, JobState.PARKED, JobState.SKIPPED, JobState.CANCELLED}),
    JobState.READY: frozenset({JobState.RUNNING, JobState.PARKED, JobState.CANCELLED}),
    JobState.RUNNING: frozenset({JobState.READY, JobState.PARKED}) | JOB_FINAL_STATES,
    JobState.PARKED: frozenset({JobState.READY, JobState.CANCELLED}),
} | {end: frozenset() for end in JOB_FINAL_STATES}

_OPEN_RUNS = frozenset(RunState) - RUN_FINAL_STATES - {RunState.PENDING, RunState.CANCELLING}
_COMPLETED_RUNS = frozenset({RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS})

RUN_TRANSITIONS: dict[RunState, frozenset[RunState]] = (
    {RunState.PENDING: frozenset({RunState.RUNNING, RunState.PAUSED, RunState.CANCELLED})}
    | {state: (_OPEN_RUNS - {state}) | {RunState.CANCELLING} | RUN_FINAL_STATES for state in _OPEN_RUNS}
    | {RunState.CANCELLING: frozenset({RunState.CANCELLED})}
    # Only an action of a person reopens an ended run, or changes how it ended. Cancelled and rejected runs stay so.
    | {end: (_OPEN_RUNS - {RunState.STUCK} | _COMPLETED_RUNS) - {end} for end in (*_COMPLETED_RUNS, RunState.FAILED)}
    | {end: frozenset() for end in (RunState.REJECTED, RunState.CANCELLED)}
)

# Until a decision takes effect, it can be undone or superseded by another action.
_AFTER_DECISION = frozenset({ReviewState.OPEN, ReviewState.WITHDRAWN})

REVIEW_TRANSITIONS: dict[ReviewState, frozenset[ReviewState]] = {
    ReviewState.OPEN: frozenset(ReviewState) - {ReviewState.OPEN},
    ReviewState.APPROVED: _AFTER_DECISION,
    ReviewState.SENT_BACK: _AFTER_DECISION,
    ReviewState.REJECTED: _AFTER_DECISION,
    ReviewState.EXPIRED: frozenset(),
    ReviewState.WITHDRAWN: frozenset(),
}

DELIVERY_TRANSITIONS: dict[DeliveryState, frozenset[DeliveryState]] = {
    DeliveryState.DUE: frozenset({DeliveryState.SENDING, DeliveryState.DEAD}),
    DeliveryState.SENDING: frozenset({DeliveryState.DUE, DeliveryState.DELIVERED, DeliveryState.DEAD}),
    DeliveryState.DELIVERED: frozenset(),
    # Only a redeliver, which is an action of a person, takes a delivery out of the dead letters.
    DeliveryState.DEAD: frozenset({DeliveryState.DUE}),
}
