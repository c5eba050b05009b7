"""What should be true of pools, recorded effects and work outside, in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

EVERY, QUEUED, RUNNING, TOTAL = (timedelta(minutes=number) for number in (1, 3, 5, 9))
LEASE = timedelta(seconds=90)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
ENDS = {"succeeded", "failed", "cancelled", "lost"}
BAD_ENDS = ENDS - {"succeeded"}


@dataclass
class Clock:
    now: datetime = LONG_AGO


@dataclass
class Pool:
    capacity: int
    paused_until: datetime | None = None

    def is_paused(self, now: datetime) -> bool:
        return self.paused_until is not None and self.paused_until > now


@dataclass
class Effect:
    """A part of a job that is done once. Who holds `fence` may say what came of it."""

    fence: int
    value: str | None = None


@dataclass
class ExternalWork:
    """Work that goes on outside. Only the report of the last look counts."""

    external_id: str
    parked_at: datetime
    due_at: datetime
    state: str = "queued"
    polls: int = 0
    running_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.state not in ENDS

    def poll(self, now: datetime) -> None:
        self.polls += 1
        self.due_at = now + LEASE

    def why_stop(self, now: datetime, *, stopping: bool) -> str | None:
        if stopping:
            return "RUN_STOPPED"
        if self.state == "queued" and now >= self.parked_at + QUEUED:
            return "QUEUE_TIMEOUT"
        works_too_long = self.running_at is not None and self.state == "running" and now >= self.running_at + RUNNING
        return "TIMEOUT" if works_too_long or now >= self.parked_at + TOTAL else None

    def is_given_up(self, now: datetime) -> bool:
        return now >= self.parked_at + TOTAL + MINUTE

    def record_poll(self, state: str, now: datetime, *, asked_to_stop: bool, stopping: bool) -> None:
        self.due_at = now + SECOND if asked_to_stop or stopping else self._next(state, now)
        self.state = state
        if state == "running":
            self.running_at = self.running_at or now

    def _next(self, state: str, now: datetime) -> datetime:
        limit = self.parked_at + QUEUED if state == "queued" else (self.running_at or now) + RUNNING
        return min(now + EVERY, *(max(now + SECOND, at) for at in (self.parked_at + TOTAL, limit)))


@dataclass
class JobResources:
    """What a job has beside its state: its pool, what it did once, and what goes on outside for it.

    `pool` is where it needs slots before it begins, `held` where it has some.
    """

    pool: str | None = None
    held: str | None = None
    slots: int = 0
    effects: dict[str, Effect] = field(default_factory=dict)
    external_work: ExternalWork | None = None
    has_callback: bool = False

    def forget_failed(self) -> None:
        """The next attempt submits anew."""
        if self.external_work is not None and self.external_work.state in BAD_ENDS:
            self.effects = {name: it for name, it in self.effects.items() if it.value != self.external_work.external_id}
            self.external_work = None
