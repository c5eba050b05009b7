"""When schedules are due: cron rules in time zones, intervals, and what a change of the clocks does to them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from retoma.define.recurrence import (
    Cron,
    Interval,
    Rule,
    check_cron,
    check_interval,
    check_time_zone,
    count_before,
    find_next,
    list_last,
    list_next,
)
from retoma.errors import InvalidInput

ZONES = ("UTC", "America/Sao_Paulo", "America/New_York", "Europe/Lisbon", "Australia/Lord_Howe", "Asia/Kathmandu")
moments = st.datetimes(datetime(2005, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))
minute_fields = st.one_of(st.just("*"), st.just("*/7"), st.integers(0, 59).map(str), st.just("0,30"))
hour_fields = st.one_of(st.just("*"), st.just("*/5"), st.integers(0, 23).map(str), st.just("0-3"))
day_fields = st.one_of(st.just("*"), st.integers(1, 28).map(str))
month_fields = st.one_of(st.just("*"), st.just("2,10,11"))
crons = st.tuples(minute_fields, hour_fields, day_fields, month_fields, st.one_of(st.just("*"), st.just("1-5")))
rules = st.one_of(
    st.builds(Cron, crons.map(" ".join), st.sampled_from(ZONES)),
    st.builds(Interval, st.timedeltas(timedelta(seconds=1), timedelta(days=400)), moments),
)


def local(zone: str, *times: datetime) -> list[str]:
    return [time.astimezone(ZoneInfo(zone)).strftime("%m-%d %H:%M%z") for time in times]


def at(zone: str, *parts: int, fold: int = 0) -> datetime:
    return datetime(*parts, tzinfo=ZoneInfo(zone), fold=fold)  # type: ignore[arg-type, misc]


@settings(deadline=None)
@given(rules, moments)
def test_due_times_increase_and_follow_the_start(rule: Rule, after: datetime) -> None:
    found = list_next(rule, after, 5)
    assert all(one < other for one, other in pairwise([after, *found]))


@settings(deadline=None)
@given(rules, moments, st.floats(0, 1))
def test_no_due_time_is_left_out_between_two(rule: Rule, after: datetime, part: float) -> None:
    """Wherever the search begins between two due times, it finds the same next one."""
    first, second = list_next(rule, after, 2)
    between = first + (second - first) * part
    assume(between < second)
    assert find_next(rule, between) == second


@settings(deadline=None)
@given(crons.map(" ".join), st.sampled_from(ZONES), moments)
def test_a_due_time_matches_its_rule_unless_the_clocks_change(text: str, zone: str, after: datetime) -> None:
    found = find_next(Cron(text, zone), after)
    assert found is not None
    here = found.astimezone(ZoneInfo(zone))
    two_hours_ago = (found - timedelta(hours=2)).astimezone(ZoneInfo(zone))
    if two_hours_ago.utcoffset() == here.utcoffset():
        minute, hour, day, month, weekday = text.split()
        assert matches(minute, here.minute, 0)
        assert matches(hour, here.hour, 0)
        assert matches(month, here.month, 1)
        days = [matches(day, here.day, 1), matches(weekday, here.isoweekday() % 7, 0)]
        assert all(days) if "*" in (day, weekday) else any(days)


def matches(field: str, value: int, first: int) -> bool:
    if field.startswith("*/"):
        return (value - first) % int(field[2:]) == 0
    low, _, high = field.partition("-")
    if high:
        return int(low) <= value <= int(high)
    return field == "*" or str(value) in field.split(",")


@pytest.mark.parametrize(
    ("zone", "after", "cron", "due"),
    [
        # Spring: 02:30 does not exist in New York on 10 March 2024.
        ("America/New_York", (2024, 3, 9, 12), "30 2 * * *", ["03-10 03:00-0400", "03-11 02:30-0400"]),
        # Autumn: 01:30 occurs twice on 3 November 2024; the first counts.
        ("America/New_York", (2024, 11, 2, 12), "30 1 * * *", ["11-03 01:30-0400", "11-04 01:30-0500"]),
        ("Europe/Lisbon", (2024, 3, 30, 12), "30 1 * * *", ["03-31 02:00+0100", "04-01 01:30+0100"]),
        ("Europe/Lisbon", (2024, 10, 26, 12), "15 1 * * *", ["10-27 01:15+0100", "10-28 01:15+0000"]),
        # In Sao Paulo the clocks went forward at midnight until 2018, and have not changed since.
        ("America/Sao_Paulo", (2017, 10, 14, 12), "0 0 * * *", ["10-15 01:00-0200", "10-16 00:00-0200"]),
        ("America/Sao_Paulo", (2018, 2, 17, 12), "30 23 * * *", ["02-17 23:30-0200", "02-18 23:30-0300"]),
        ("America/Sao_Paulo", (2025, 10, 18, 12), "0 0 * * *", ["10-19 00:00-0300", "10-20 00:00-0300"]),
    ],
)
def test_a_daily_rule_is_due_once_a_day_when_the_clocks_change(
    zone: str, after: tuple[int, ...], cron: str, due: list[str]
) -> None:
    assert local(zone, *list_next(Cron(cron, zone), at(zone, *after), 2)) == due


def test_several_times_of_a_gap_are_due_once() -> None:
    rule = Cron("0,15,30 2 * * *", "America/New_York")
    found = list_next(rule, at("America/New_York", 2024, 3, 9, 12), 2)
    assert local("America/New_York", *found) == ["03-10 03:00-0400", "03-11 02:00-0400"]


def test_a_search_in_a_repeated_hour_does_not_go_back() -> None:
    """At 01:10 of the second pass, the only 01:30 of the day is over."""
    second_pass = at("America/New_York", 2024, 11, 3, 1, 10, fold=1)
    found = find_next(Cron("30 1 * * *", "America/New_York"), second_pass)
    assert found is not None
    assert local("America/New_York", found) == ["11-04 01:30-0500"]


def test_a_rule_with_a_wildcard_follows_the_clock_through_both_passes() -> None:
    rule = Cron("*/30 * * * *", "America/New_York")
    found = list_next(rule, at("America/New_York", 2024, 11, 3, 0, 45), 5)
    assert local("America/New_York", *found) == [
        "11-03 01:00-0400",
        "11-03 01:30-0400",
        "11-03 01:00-0500",
        "11-03 01:30-0500",
        "11-03 02:00-0500",
    ]


def test_an_interval_counts_elapsed_time_when_the_clocks_change() -> None:
    anchor = at("America/New_York", 2024, 3, 9, 12)
    found = list_next(Interval(timedelta(days=1), anchor), anchor, 2)
    assert local("America/New_York", *found) == ["03-10 13:00-0400", "03-11 13:00-0400"]


@settings(deadline=None)
@given(rules, moments, st.integers(1, 4), st.integers(1, 20))
def test_the_last_due_times_are_those_that_a_search_from_the_start_finds(
    rule: Rule, after: datetime, limit: int, count: int
) -> None:
    first, *rest = list_next(rule, after, count)
    until = (rest or [first])[-1] + timedelta(microseconds=1)
    assert list_last(rule, first, until, limit) == [first, *rest][-limit:]
    assert count_before(rule, first, until, 1_000) == count


def test_nothing_is_due_before_the_first_time() -> None:
    first = datetime(2030, 1, 1, tzinfo=UTC)
    assert list_last(Cron("0 * * * *"), first, first - timedelta(seconds=1), 3) == []
    assert count_before(Cron("0 * * * *"), first, first, 3) == 0


@pytest.mark.parametrize(
    "text", ["", "* * * *", "0 3 * * * *", "61 * * * *", "0 0 30 2 *", "@daily", "a b c d e", "0 " * 200, "*/0 * * * *"]
)
def test_a_cron_rule_that_is_never_due_or_not_valid_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="cron rule"):
        check_cron(text, "UTC")


@settings(deadline=None)
@given(st.text("0123456789*/,-#LWMON ?", max_size=40))
def test_no_text_breaks_the_check_of_a_cron_rule(text: str) -> None:
    try:
        check_cron(text, "UTC")
    except InvalidInput:
        return
    assert find_next(Cron(text, "America/New_York"), datetime(2030, 1, 1, tzinfo=UTC)) is not None


def test_an_unknown_time_zone_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'America/Sao_Paulo'"):
        check_time_zone("America/SaoPaulo")


@pytest.mark.parametrize("every", [timedelta(0), timedelta(milliseconds=999), timedelta(days=4_000)])
def test_an_interval_out_of_range_is_refused(every: timedelta) -> None:
    with pytest.raises(InvalidInput, match="from one second"):
        check_interval(every)
