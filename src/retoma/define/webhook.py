"""Webhooks of a run: the URL, its events and the schedule of attempts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from retoma.define.definition_errors import suggest_name
from retoma.errors import InvalidInput
from retoma.states import RUN_FINAL_STATES

STARTED = "run.started"
ENDED = "run.ended"
END_EVENTS = tuple(sorted(f"run.{state}" for state in RUN_FINAL_STATES))
STUCK = "run.stuck"
REVIEW_OPENED = "review.opened"
EVENTS = (STARTED, ENDED, *END_EVENTS, STUCK, REVIEW_OPENED)
# Seconds to wait before each attempt.
SCHEDULES: dict[str, tuple[int, ...]] = {
    "short": (0, 2, 4, 8, 16),
    "standard": (0, 2, 4, 8, 16, 60, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400),
}
MAX_RETRIES = 100


@dataclass(frozen=True)
class Webhook:
    """Notify `url` of these events of a run: `run.started`, `run.completed`, ..., or `run.ended` for every final state;
    also `run.stuck` and `review.opened`, if listed.

    `schedule` is the schedule of attempts, `standard` (about three days) or `short` (half a minute). `retries` limits
    the attempts after the first one.
    """

    url: str
    events: Sequence[str] = (ENDED,)
    schedule: str = "standard"
    retries: int | None = None

    def __post_init__(self) -> None:
        if not self.events or isinstance(self.events, str):
            raise InvalidInput(f"a webhook's events must be a list of at least one of {', '.join(EVENTS)}")
        for event in self.events:
            _check("event", event, EVENTS)
        _check("schedule", self.schedule, tuple(SCHEDULES))
        if self.retries is not None and not 0 <= self.retries <= MAX_RETRIES:
            raise InvalidInput(
                f"a webhook's retries must be a whole number from 0 to {MAX_RETRIES}, not {self.retries!r:.40}"
            )


def expand_events(events: Sequence[str]) -> list[str]:
    """Return the individual events, with `run.ended` expanded into all final states."""
    return sorted({event for each in events for event in (END_EVENTS if each == ENDED else (each,))})


def encode_webhook(webhook: Webhook, host: str) -> str:
    """Return the webhook as the database stores it, with all events expanded."""
    return json.dumps(
        {
            "url": webhook.url,
            "host": host,
            "events": expand_events(webhook.events),
            "schedule": webhook.schedule,
            "retries": webhook.retries,
        }
    )


def _check(field: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise InvalidInput(f"a webhook has no {field} {value!r:.80}; {suggest_name(str(value), known)}")
