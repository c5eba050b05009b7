"""When a schedule is due: the next times of a cron rule or of an interval. Pure: no clock, no database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from retoma.errors import InvalidInput
from retoma.translations import N_

MAX_CRON_LENGTH = 200
MIN_INTERVAL = timedelta(seconds=1)
MAX_INTERVAL = timedelta(days=3650)
_FIRST_WINDOW = timedelta(minutes=1)
_WINDOW_GROWTH = 8


@dataclass(frozen=True)
class Cron:
    """Five fields, in the local time of a time zone.

    A rule with fixed minutes and hours names local times: one that does not exist on a day, because the clocks go
    forward, is due at the next moment that exists, and one that occurs twice is due the first time. A rule whose
    minute or hour begins with `*` follows the clock: it is due in both passes of a repeated hour, and not in an hour
    that is left out.
    """

    text: str
    time_zone: str = "UTC"


@dataclass(frozen=True)
class Interval:
    """Every so much elapsed time after `anchor_at`, whatever the local time."""

    every: timedelta
    anchor_at: datetime


Rule = Cron | Interval


def check_cron(text: str, time_zone: str) -> None:
    """Raise InvalidInput unless the rule is due at least once in the coming decades."""
    check_time_zone(time_zone)
    if len(text) > MAX_CRON_LENGTH or len(text.split()) != 5:
        raise InvalidInput(
            N_("a cron rule has five fields (minute, hour, day of the month, month, day of the week), not %(rule)s"),
            rule=f"{text!r:.80}",
        )
    try:
        found = next(CronSim(text, datetime(2024, 1, 1, tzinfo=UTC)), None)  # noqa: RUF100
    except CronSimError as error:
        raise InvalidInput(
            N_("the cron rule %(rule)s is not valid: %(error)s"), rule=f"{text!r:.80}", error=str(error).lower()
        ) from None
    if found is None:
        raise InvalidInput(N_("the cron rule %(rule)s names a day that does not occur"), rule=f"{text!r:.80}")


def check_time_zone(name: str) -> None:
    if name not in _list_time_zones():
        near = get_close_matches(name, _list_time_zones(), n=1)
        if near:
            raise InvalidInput(
                N_("there is no time zone %(name)s; did you mean %(near)s?"), name=f"{name!r:.80}", near=repr(near[0])
            )
        raise InvalidInput(N_("there is no time zone %(name)s, such as America/Sao_Paulo"), name=f"{name!r:.80}")


def check_interval(every: timedelta) -> None:
    if not MIN_INTERVAL <= every <= MAX_INTERVAL:
        raise InvalidInput(
            N_("an interval is from one second to %(days)s days, not %(every)s"),
            days=MAX_INTERVAL.days,
            every=format_seconds(every),
        )


def format_seconds(value: timedelta) -> str:
    """Return a duration for an error message, in a form that every language has."""
    return f"{value.total_seconds():.12g} s"


def find_next(rule: Rule, after: datetime) -> datetime | None:
    """Return the first time after this one at which the rule is due, in UTC. None: never again."""
    after = after.astimezone(UTC)  # the sum of a local time and a duration would be another local time
    match rule:
        case Interval(every, anchor_at):
            first = anchor_at.astimezone(UTC)
            return first + max(1, (after - first) // every + 1) * every
        case Cron(text, time_zone):
            moments = (each.astimezone(UTC) for each in CronSim(text, after.astimezone(ZoneInfo(time_zone))))
            # In a repeated hour, CronSim returns a local time whose first occurrence is over.
            return next((each for each in moments if each > after), None)


def iterate(rule: Rule, after: datetime) -> Iterator[datetime]:
    """Yield the times after this one at which the rule is due, in order."""
    while (found := find_next(rule, after)) is not None:
        yield found
        after = found


def list_next(rule: Rule, after: datetime, limit: int) -> list[datetime]:
    return list(islice(iterate(rule, after), limit))


def list_last(rule: Rule, first: datetime, until: datetime, limit: int) -> list[datetime]:
    """Return the last times, at most `limit`, of `first` and those after it until `until`, in order.

    Looks back in growing windows, so a rule that was due a million times costs no more than the ones it returns.
    """
    if until < first:
        return []
    window = _FIRST_WINDOW
    while True:
        start = max(first, until - window)
        found = [first] if start == first else []
        for each in iterate(rule, start):
            if each > until:
                break
            found.append(each)
        if len(found) >= limit or start == first:
            return found[-limit:]
        window *= _WINDOW_GROWTH


def count_before(rule: Rule, first: datetime, until: datetime, limit: int) -> int:
    """Count `first` and the times after it that are before `until`, at most `limit`."""
    if until <= first:
        return 0
    count = 1
    for each in islice(iterate(rule, first), limit - 1):
        if each >= until:
            break
        count += 1
    return count


@cache
def _list_time_zones() -> frozenset[str]:
    return frozenset(available_timezones())
