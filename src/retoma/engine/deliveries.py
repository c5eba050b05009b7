"""What follows an attempt to deliver a webhook: it is over, it is tried again later, or it is given up."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum

from retoma.define.webhook import SCHEDULES

LONGEST_PAUSE = timedelta(hours=1)
_GONE = 410
_BUSY = (429, 503)
_NOT_YET = (404, 408, 409, 425, 429)  # 4xx answers that pass: n8n gives 404 and 409 until its workflow waits
REFUSED_TRIES = 3


class Outcome(StrEnum):
    DELIVERED = "delivered"
    AGAIN = "again"
    DEAD = "dead"
    GONE = "gone"


@dataclass(frozen=True)
class Verdict:
    """`delay` is for this delivery; `pause` is for all that is owed to the endpoint."""

    outcome: Outcome
    delay: timedelta = timedelta(0)
    pause: timedelta | None = None


def after_answer(
    status: int,
    retry_after: timedelta | None,
    *,
    profile: str,
    retries: int | None,
    tries: int,
    spread: Callable[[], float] | None = None,
) -> Verdict:
    """Any 2xx is a delivery and 410 ends the endpoint. Everything else is tried again, and a refusal of the request
    itself no more than twice."""
    if 200 <= status < 300:
        return Verdict(Outcome.DELIVERED)
    if status == _GONE:
        return Verdict(Outcome.GONE)
    if 400 <= status < 500 and status not in _NOT_YET and tries >= REFUSED_TRIES:
        return Verdict(Outcome.DEAD)
    return after_failure(
        profile=profile,
        retries=retries,
        tries=tries,
        at_least=retry_after,
        pause=retry_after if status in _BUSY else None,
        spread=spread,
    )


def after_failure(
    *,
    profile: str,
    retries: int | None,
    tries: int,
    at_least: timedelta | None = None,
    pause: timedelta | None = None,
    spread: Callable[[], float] | None = None,
) -> Verdict:
    """The next attempt of the schedule after `tries` of them, or none if they are used up."""
    waits = SCHEDULES[profile]
    if tries >= len(waits) or (retries is not None and tries > retries):
        return Verdict(Outcome.DEAD, pause=pause)
    delay = timedelta(seconds=waits[tries] * (spread or _spread)())
    return Verdict(Outcome.AGAIN, max(delay, at_least or timedelta(0)), pause)


def retry_after(said: str | None, now: datetime) -> timedelta | None:
    """What a Retry-After header asks for, in seconds or as a date, up to an hour; None if it cannot be read."""
    if not said:
        return None
    if said.isascii() and said.isdigit():
        return min(timedelta(seconds=int(said[:9])), LONGEST_PAUSE)
    try:
        return min(max(_until(said, now), timedelta(0)), LONGEST_PAUSE)
    except (ValueError, OverflowError):
        return None


def _until(said: str, now: datetime) -> timedelta:
    at = parsedate_to_datetime(said)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)) - now


def _spread() -> float:
    """So that what failed together does not come back together."""
    return random.uniform(1.0, 1.2)  # noqa: S311
