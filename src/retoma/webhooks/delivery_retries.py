"""What follows an attempt to deliver a webhook: it is over, it is tried again later, or it is given up."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum

from retoma.define.webhook import SCHEDULES

MAX_PAUSE = timedelta(hours=1)
_GONE = 410
_BUSY = (429, 503)
_NOT_YET = (404, 408, 409, 425, 429)  # 4xx answers that pass: n8n gives 404 and 409 until its workflow waits
MAX_REJECTED_ATTEMPTS = 3


class DeliveryOutcome(StrEnum):
    DELIVERED = "delivered"
    RETRY = "again"
    DEAD = "dead"
    GONE = "gone"


@dataclass(frozen=True)
class RetryDecision:
    """`delay` is for this delivery; `pause` is for all that is owed to the endpoint."""

    outcome: DeliveryOutcome
    delay: timedelta = timedelta(0)
    pause: timedelta | None = None


def decide_after_response(
    status: int,
    retry_after: timedelta | None,
    *,
    schedule: str,
    retries: int | None,
    schedule_attempt: int,
    jitter: Callable[[], float] | None = None,
) -> RetryDecision:
    """Any 2xx is a delivery and 410 ends the endpoint. Everything else is tried again, and a refusal of the request
    itself no more than twice."""
    if 200 <= status < 300:
        return RetryDecision(DeliveryOutcome.DELIVERED)
    if status == _GONE:
        return RetryDecision(DeliveryOutcome.GONE)
    if 400 <= status < 500 and status not in _NOT_YET and schedule_attempt >= MAX_REJECTED_ATTEMPTS:
        return RetryDecision(DeliveryOutcome.DEAD)
    return decide_after_failure(
        schedule=schedule,
        retries=retries,
        schedule_attempt=schedule_attempt,
        at_least=retry_after,
        pause=retry_after if status in _BUSY else None,
        jitter=jitter,
    )


def decide_after_failure(
    *,
    schedule: str,
    retries: int | None,
    schedule_attempt: int,
    at_least: timedelta | None = None,
    pause: timedelta | None = None,
    jitter: Callable[[], float] | None = None,
) -> RetryDecision:
    """The next attempt of the schedule after `tries` of them, or none if they are used up."""
    waits = SCHEDULES[schedule]
    if schedule_attempt >= len(waits) or (retries is not None and schedule_attempt > retries):
        return RetryDecision(DeliveryOutcome.DEAD, pause=pause)
    delay = timedelta(seconds=waits[schedule_attempt] * (jitter or _draw_jitter)())
    return RetryDecision(DeliveryOutcome.RETRY, max(delay, at_least or timedelta(0)), pause)


def parse_retry_after(header: str | None, now: datetime) -> timedelta | None:
    """What a Retry-After header asks for, in seconds or as a date, up to an hour; None if it cannot be read."""
    if not header:
        return None
    if header.isascii() and header.isdigit():
        return min(timedelta(seconds=int(header[:9])), MAX_PAUSE)
    try:
        return min(max(_parse_http_date(header, now), timedelta(0)), MAX_PAUSE)
    except (ValueError, OverflowError):
        return None


def _parse_http_date(header: str, now: datetime) -> timedelta:
    at = parsedate_to_datetime(header)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)) - now


def _draw_jitter() -> float:
    """So that what failed together does not come back together."""
    return random.uniform(1.0, 1.2)  # noqa: S311
