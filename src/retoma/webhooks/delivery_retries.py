"""Decide after an attempt to deliver a webhook: done, retry later, or dead letter."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Protocol

from retoma.define.webhook import SCHEDULES

MAX_PAUSE = timedelta(hours=1)
JITTER = (1.0, 1.2)
_GONE = 410
_BUSY = (429, 503)
_NOT_YET = (404, 408, 409, 425, 429)  # temporary 4xx responses: n8n answers 404 and 409 until its workflow waits
MAX_REJECTED_ATTEMPTS = 3


class Attempted(Protocol):
    """What was sent: a webhook, or a message to a person. `schedule_attempt` counts this attempt."""

    @property
    def schedule(self) -> str: ...
    @property
    def schedule_attempt(self) -> int: ...
    @property
    def retries(self) -> int | None: ...


class DeliveryOutcome(StrEnum):
    DELIVERED = "delivered"
    RETRY = "again"
    DEAD = "dead"
    GONE = "gone"


@dataclass(frozen=True)
class RetryDecision:
    """`delay` is for this delivery; `pause` is for all deliveries to the endpoint."""

    outcome: DeliveryOutcome
    delay: timedelta = timedelta(0)
    pause: timedelta | None = None


def decide_after_response(delivery: Attempted, status: int, retry_after: timedelta | None) -> RetryDecision:
    """Return the decision: 2xx is delivered, 410 disables the endpoint, and everything else is retried, permanent 4xx
    responses at most twice."""
    if 200 <= status < 300:
        return RetryDecision(DeliveryOutcome.DELIVERED)
    if status == _GONE:
        return RetryDecision(DeliveryOutcome.GONE)
    if 400 <= status < 500 and status not in _NOT_YET and delivery.schedule_attempt >= MAX_REJECTED_ATTEMPTS:
        return RetryDecision(DeliveryOutcome.DEAD)
    return decide_after_failure(delivery, at_least=retry_after, pause=retry_after if status in _BUSY else None)


def decide_after_failure(
    delivery: Attempted, *, at_least: timedelta | None = None, pause: timedelta | None = None
) -> RetryDecision:
    """Return the next retry of the delivery's schedule, or DEAD if none is left."""
    waits, tried = SCHEDULES[delivery.schedule], delivery.schedule_attempt
    if tried >= len(waits) or (delivery.retries is not None and tried > delivery.retries):
        return RetryDecision(DeliveryOutcome.DEAD, pause=pause)
    # The factor spreads retries of deliveries that failed together.
    delay = timedelta(seconds=waits[tried] * random.uniform(*JITTER))  # noqa: S311
    return RetryDecision(DeliveryOutcome.RETRY, max(delay, at_least or timedelta(0)), pause)


def parse_retry_after(header: str | None, now: datetime) -> timedelta | None:
    """Return the wait of a Retry-After header, in seconds or as a date, up to an hour; None if it is invalid."""
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
