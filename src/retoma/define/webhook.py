"""Who is told of a run, and of what."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from retoma.errors import InvalidInput
from retoma.states import RUN_ENDS

STARTED = "run.started"
ENDED = "run.ended"
ENDS = tuple(sorted(f"run.{state}" for state in RUN_ENDS))
EVENTS = (STARTED, ENDED, *ENDS)
# Seconds to wait before each attempt.
SCHEDULES: dict[str, tuple[int, ...]] = {
    "short": (0, 2, 4, 8, 16),
    "standard": (0, 2, 4, 8, 16, 60, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400),
}
MOST_RETRIES = 100


@dataclass(frozen=True)
class Webhook:
    """Tell `url` of these events of a run: `run.started`, `run.completed`, ..., or `run.ended` for every end.

    `profile` is the schedule of attempts, `standard` (about three days) or `short` (half a minute), of which at most
    `retries` follow the first attempt.
    """

    url: str
    events: Sequence[str] = (ENDED,)
    profile: str = "standard"
    retries: int | None = None

    def __post_init__(self) -> None:
        if not self.events or isinstance(self.events, str):
            raise InvalidInput(f"a webhook's events are a list of at least one of {', '.join(EVENTS)}")
        for event in self.events:
            _check("event", event, EVENTS)
        _check("profile", self.profile, tuple(SCHEDULES))
        if self.retries is not None and not 0 <= self.retries <= MOST_RETRIES:
            raise InvalidInput(
                f"a webhook's retries are a whole number up to {MOST_RETRIES}; given: {self.retries!r:.40}"
            )


def recorded(webhook: Webhook, host: str) -> str:
    """As the database takes it, with every event named."""
    events = {event for given in webhook.events for event in (ENDS if given == ENDED else (given,))}
    return json.dumps(
        {
            "url": webhook.url,
            "host": host,
            "events": sorted(events),
            "profile": webhook.profile,
            "retries": webhook.retries,
        }
    )


def _check(what: str, given: object, known: Sequence[str]) -> None:
    if given not in known:
        near = get_close_matches(str(given), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(map(repr, known))}"
        raise InvalidInput(f"a webhook has no {what} {given!r:.80}; {hint}")
