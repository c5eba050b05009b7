"""How long a provider asks to be left alone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

from retoma.outgoing import Answer

LONGEST = timedelta(hours=1)
SHORTEST = timedelta(seconds=1)
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?")
_MILLISECONDS = re.compile(r"\d{13}")


def asked_pause(answer: Answer) -> timedelta | None:
    """By Retry-After, as seconds or as a date, or else by X-RateLimit-Reset; both by the provider's own clock.

    Never longer than an hour: a wrong header must not stop a pool for a day.
    """
    given = answer.headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(given):
        return min(timedelta(seconds=float(given)), LONGEST)
    until = _date(given) or _reset(answer)
    now = _date(answer.headers.get("date", ""))
    return None if until is None or now is None else min(max(until - now, SHORTEST), LONGEST)


def _reset(answer: Answer) -> datetime | None:
    given = answer.headers.get("x-ratelimit-reset", "").strip()
    now = _date(answer.headers.get("date", ""))
    if now is None or not _MILLISECONDS.fullmatch(given):
        return None
    return datetime.fromtimestamp(int(given) / 1000, tz=now.tzinfo)


def _date(given: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(given)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found.tzinfo is not None else None
