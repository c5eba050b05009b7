"""Parse how long a provider asks us to wait."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from retoma.outgoing import Response

MAX_DELAY = timedelta(hours=1)
MIN_DELAY = timedelta(seconds=1)
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?")
_MILLISECONDS = re.compile(r"\d{13}")


def parse_retry_after(answer: Response) -> timedelta | None:
    """Return the delay from Retry-After (seconds or a date), else from X-RateLimit-Reset, both by the provider's clock.

    Never longer than an hour: a wrong header must not stop a pool for a day.
    """
    header = answer.headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(header):
        return min(timedelta(seconds=float(header)), MAX_DELAY)
    until, now = _parse_date(header) or _rate_limit_reset(answer), get_response_time(answer)
    return None if until is None or now is None else min(max(until - now, MIN_DELAY), MAX_DELAY)


def get_response_time(answer: Response) -> datetime | None:
    """Return the time of the answer by the provider's clock, or None if it does not say."""
    return _parse_date(answer.headers.get("date", ""))


def _rate_limit_reset(answer: Response) -> datetime | None:
    header = answer.headers.get("x-ratelimit-reset", "").strip()
    return datetime.fromtimestamp(int(header) / 1000, tz=UTC) if _MILLISECONDS.fullmatch(header) else None


def _parse_date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found.tzinfo is not None else None
