"""The expected behaviour of pools, recorded effects and external work, in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

EVERY, QUEUED, RUNNING, TOTAL = (timedelta(minutes=number) for number in (1, 3, 5, 9))
LEASE = timedelta(seconds=90)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
ENDS = {"succeeded", "failed", "cancelled", "lost"}
BAD_ENDS = ENDS - {"succeeded"}
SUBMISSION, ORDER, PAYMENT = "external", "order", "pay"  # effects: only of a payment nobody can be asked


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
    """A part of a job that runs once. The holder of `fence` may record its outcome."""

    name: str
    fence: int
    value: str | None = None
    is_abandoned: bool = False
    look_at: datetime | None = None  # while a worker looks for it
    looks: int = 0
    failed_looks: int = 0
    is_orphan: bool = False
    resolution: str | None = None

    @property
    def is_submission(self) -> bool:
        return self.name == SUBMISSION

    @property
    def has_find(self) -> bool:
        return self.name in (SUBMISSION, ORDER)

    @property
    def has_cancel(self) -> bool:
        return self.name in (SUBMISSION, ORDER)

    @property
    def can_be_looked_for(self) -> bool:
        return self.has_find or self.value is not None

    def end(self, value: str, now: datetime) -> None:
        """What came of it is known; if nobody waits for that any more, somebody looks at it again."""
        if self.value is None:
            self.value = value
            if self.is_abandoned:
                self.look_at, self.is_orphan, self.resolution = now, False, None
                self.looks += 1

    def look(self, now: datetime) -> None:
        self.looks += 1
        self.look_at = now + LEASE

    def record_look(self, resolution: str | None, value: str | None, now: datetime) -> None:
        self.value = self.value or value
        self.resolution = resolution
        self.look_at = None if resolution else now + min(SECOND * 2**self.failed_looks, MINUTE)
        self.failed_looks += resolution is None


@dataclass
class ExternalWork:
    """External work. Only the result of the last poll counts."""

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

    def why_stop(self, now: datetime, *, stopping: bool, ended: bool) -> str | None:
        if stopping or ended:
            return "RUN_STOPPED" if stopping else "JOB_ENDED"
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
    """What a job has besides its state: its pool, its effects and its external work.

    `pool` is where it needs slots before it begins, `held` where it has some.
    """

    pool: str | None = None
    held: str | None = None
    slots: int = 0
    effects: dict[str, Effect] = field(default_factory=dict)
    external_work: ExternalWork | None = None
    has_callback: bool = False

    def forget_failed(self) -> None:
        """The next attempt submits again."""
        if self.external_work is not None and self.external_work.state in BAD_ENDS:
            self.effects.pop(SUBMISSION, None)
            self.external_work = None

    def orphan_external_work(self) -> None:
        """It may still be in progress, and nobody polls it any longer; the next attempt may submit again."""
        effect = self.effects.pop(SUBMISSION)
        effect.name = f"{SUBMISSION}#{effect.fence}"
        effect.is_abandoned = effect.is_orphan = True
        effect.look_at = effect.resolution = None
        self.effects[effect.name] = effect

    def list_left_behind(self) -> list[Effect]:
        """What may continue at a provider without anybody knowing, if the job ends now."""
        return [
            effect
            for effect in self.effects.values()
            if (effect.value is None or effect.has_cancel)
            and not (effect.is_submission and self.external_work is not None)
        ]

    def abandon(self, now: datetime) -> None:
        for effect in self.list_left_behind():
            if not effect.is_abandoned:
                effect.is_abandoned = True
                effect.look_at = now if effect.can_be_looked_for else None
                effect.is_orphan = not effect.can_be_looked_for

    @property
    def is_looked_for(self) -> bool:
        return any(effect.look_at is not None for effect in self.effects.values())

    @property
    def may_have_submitted(self) -> bool:
        unknown = [effect for effect in self.effects.values() if effect.has_find and effect.value is None]
        return bool(unknown) or SUBMISSION in self.effects
